package show

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/people/mask"
)

// Editable is a call's arguments for somebody to edit: compact JSON in which a placeholder stands for every value that has a secret in it.
// A text is such a value as a whole, even where a part of it is the secret; so is an object one of whose keys has the form of one. Restore
// reads what has become of it. The error says that the arguments are no JSON.
func Editable(args, schema json.RawMessage) (json.RawMessage, error) {
	v, err := mask.Read(args, schema)
	if err != nil {
		return nil, err
	}
	return replaceValues(v, "", findMasked(v).placeholders), nil
}

// EditError says why edited arguments are not taken. It quotes nothing of what is stored.
type EditError struct {
	Pointer string // RFC 6901, into what was edited
	Problem string
}

func (e *EditError) Error() string {
	return fmt.Sprintf("edited arguments at %q: %s", e.Pointer, e.Problem)
}

// Restore puts the stored values back where what Editable gave is unchanged: a placeholder at the very place for which it was made, which
// is numbered, so that a value does not move with its neighbours. A placeholder anywhere else is refused, be it a part of a text or a key,
// unless that very text is stored there. The errors are agent.CompactJSON's, of what was edited, and *EditError; the result is compact.
func Restore(edited, args, schema json.RawMessage) (json.RawMessage, error) {
	edited, err := jsonx.CompactJSON(edited, jsonx.JSONLimits{})
	if err != nil {
		return nil, err
	}
	stored, err := mask.Read(args, schema)
	if err != nil {
		return nil, err
	}
	h := findMasked(stored)
	v, err := mask.Read(edited, nil)
	if err != nil {
		return nil, err
	}
	back := map[string]json.RawMessage{}
	if err := h.restore(v, "", back); err != nil {
		return nil, err
	}
	return jsonx.CompactJSON(replaceValues(v, "", back), jsonx.JSONLimits{})
}

// What placeholders begin and end with. Between them is a number.
const (
	placeholderBegins = "[masked "
	placeholderEnds   = ": kept as it is]"
)

// findMasked finds the values of stored arguments that are held back.
func findMasked(v *mask.Value) maskedValues {
	h := maskedValues{map[string]json.RawMessage{}, map[string]json.RawMessage{}, map[string]string{}, map[string]bool{}}
	h.collect(v, "")
	return h
}

// maskedValues knows the values that are held back, by their pointers.
type maskedValues struct {
	placeholders map[string]json.RawMessage // JSON strings
	stored       map[string]json.RawMessage // the values they stand for
	texts        map[string]string          // the stored texts that are not held back and look like placeholders
	keys         map[string]bool            // the members whose keys do
}

// collect finds what is held back in v and below.
func (h *maskedValues) collect(v *mask.Value, at string) {
	if isMasked(v) {
		h.placeholders[at] = json.RawMessage(fmt.Sprintf(`"%s%d%s"`, placeholderBegins, len(h.placeholders)+1, placeholderEnds))
		h.stored[at] = v.Raw
		return
	}
	if v.Kind == mask.String && strings.Contains(v.Text, placeholderBegins) {
		h.texts[at] = v.Text
	}
	for i, m := range v.Members {
		under := pointer(at, v.Kind, i, m.Key)
		if strings.Contains(m.Key, placeholderBegins) {
			h.keys[under] = true
		}
		h.collect(m.Value, under)
	}
}

// isMasked reports whether a value is held back as a whole.
func isMasked(v *mask.Value) bool {
	if v.Secret != "" || len(v.Hidden) > 0 {
		return true
	}
	for _, m := range v.Members {
		if len(mask.Secrets(m.Key)) > 0 {
			return true
		}
	}
	return false
}

func pointer(at string, of mask.Kind, i int, key string) string {
	if of == mask.Array {
		return fmt.Sprintf("%s/%d", at, i)
	}
	return at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// restore collects what stands at the places of v where placeholders are.
func (h *maskedValues) restore(v *mask.Value, at string, back map[string]json.RawMessage) error {
	if v.Kind == mask.String && strings.Contains(v.Text, placeholderBegins) {
		switch want, held := h.placeholders[at]; {
		case held && string(want) == string(v.Raw):
			back[at] = h.stored[at]
			return nil
		case h.texts[at] == v.Text: // it was there before
			return nil
		}
		return &EditError{Pointer: at, Problem: "a masked value may stay where it was, or be replaced as a whole; it cannot be moved, copied or made a part of something"}
	}
	for i, m := range v.Members {
		under := pointer(at, v.Kind, i, m.Key)
		if strings.Contains(m.Key, placeholderBegins) && !h.keys[under] {
			return &EditError{Pointer: at, Problem: "a masked value cannot be a key"}
		}
		if err := h.restore(m.Value, under, back); err != nil {
			return err
		}
	}
	return nil
}

// replaceValues is v with other values at some places. Keys and what is between stay as they are spelled.
func replaceValues(v *mask.Value, at string, by map[string]json.RawMessage) json.RawMessage {
	if other, ok := by[at]; ok {
		return other
	}
	if v.Kind != mask.Object && v.Kind != mask.Array {
		return v.Raw
	}
	brackets := "{}"
	if v.Kind == mask.Array {
		brackets = "[]"
	}
	out := []byte{brackets[0]}
	for i, m := range v.Members {
		if i > 0 {
			out = append(out, ',')
		}
		if v.Kind == mask.Object {
			out = append(append(out, m.RawKey...), ':')
		}
		out = append(out, replaceValues(m.Value, pointer(at, v.Kind, i, m.Key), by)...)
	}
	return append(out, brackets[1])
}
