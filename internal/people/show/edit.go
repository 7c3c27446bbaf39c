package show

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/people/mask"
)

// Editable returns a call's arguments for a person to edit: compact JSON with a placeholder for every value that has a
// secret in it. The placeholder replaces a whole text, even if only a part of it is secret, and a whole object if one
// of its keys has the form of a secret. Restore reads the edited JSON. The error says that the arguments are not JSON.
func Editable(args, schema json.RawMessage) (json.RawMessage, error) {
	v, err := mask.Read(args, schema)
	if err != nil {
		return nil, err
	}
	return replaceValues(v, "", findMasked(v).placeholders), nil
}

// EditError says why edited arguments are rejected. It quotes nothing of what is stored.
type EditError struct {
	Pointer string // RFC 6901, into what was edited
	Problem string
}

func (e *EditError) Error() string {
	return fmt.Sprintf("edited arguments at %q: %s", e.Pointer, e.Problem)
}

// Restore puts the stored values back in place of the placeholders of Editable. A placeholder must stay where Editable
// put it; placeholders are numbered, so that values cannot swap places. A placeholder anywhere else, even as a part of
// a text or a key, is rejected, unless that very text is stored there. The errors are those of agent.CompactJSON for
// the edited JSON, and *EditError. The result is compact.
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

// findMasked finds the masked values of stored arguments.
func findMasked(v *mask.Value) maskedValues {
	h := maskedValues{map[string]json.RawMessage{}, map[string]json.RawMessage{}, map[string]string{}, map[string]bool{}}
	h.collect(v, "")
	return h
}

// maskedValues holds the masked values by their JSON pointers.
type maskedValues struct {
	placeholders map[string]json.RawMessage // JSON strings
	stored       map[string]json.RawMessage // the values they stand for
	texts        map[string]string          // the stored texts that are not held back and look like placeholders
	keys         map[string]bool            // the members whose keys do
}

// collect finds the masked values in v.
func (h *maskedValues) collect(v *mask.Value, at string) {
	if isMasked(v) {
		h.placeholders[at] = json.RawMessage(fmt.Sprintf(`"%s%d%s"`, placeholderBegins, len(h.placeholders)+1,
			placeholderEnds))
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

// isMasked reports whether a value is masked as a whole.
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

// restore collects the stored values for the placeholders in v.
func (h *maskedValues) restore(v *mask.Value, at string, back map[string]json.RawMessage) error {
	if v.Kind == mask.String && strings.Contains(v.Text, placeholderBegins) {
		switch want, held := h.placeholders[at]; {
		case held && string(want) == string(v.Raw):
			back[at] = h.stored[at]
			return nil
		case h.texts[at] == v.Text: // it was there before
			return nil
		}
		return &EditError{Pointer: at, Problem: "a masked value may stay where it was, or be replaced as a whole; it " +
			"cannot be moved, copied or made a part of something"}
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

// replaceValues returns v with other values at some pointers. Keys and white space keep their spelling.
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
