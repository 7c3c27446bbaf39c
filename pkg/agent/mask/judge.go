package mask

// judge says of a value, and of all within it, why it is masked. What the schema marks is masked with all within it, whatever its type.
// A name masks the texts behind it, in lists and objects, too: a number, boolean or null under such a name counts or switches something
// more often than it is a secret, and is masked where the schema says so.
func judge(v *Value, m marks) { judgeUnder(v, m, "") }

func judgeUnder(v *Value, m marks, why Reason) {
	if m.secret() || why == BySchema {
		why = BySchema
		v.Secret = why
	}
	switch v.Kind {
	case String:
		v.Secret = why
		if r := Secrets(v.Text); why == "" && len(r) == 1 && r[0] == (Range{0, len(v.Text)}) {
			v.Secret = ByForm
		}
	case Object:
		for _, member := range v.Members {
			under := why
			if under == "" && SecretName(member.Key) {
				under = ByName
			}
			judgeUnder(member.Value, m.member(member.Key), under)
		}
	case Array:
		for i, member := range v.Members {
			judgeUnder(member.Value, m.element(i), why)
		}
	}
}
