package agent

import "strings"

// lambdaTool wants a function of a tool of kind lambda, and none of any other.
func (c *checker) lambdaTool(at string, t ToolSpec) {
	switch {
	case t.Kind != KindLambda:
		c.that(t.Lambda == nil, at+".function", "got a function, want none: only a tool of kind lambda has one")
	case t.Lambda == nil:
		c.form(false, at+".function", "", functionForm)
	default:
		c.form(validFunction(t.Lambda.Function), at+".function", t.Lambda.Function, functionForm)
	}
}

const functionForm = "the name or ARN of a function of AWS Lambda"

// validFunction reports whether name is one of FUNCTION, ACCOUNT:function:FUNCTION and arn:PARTITION:lambda:REGION:ACCOUNT:function:FUNCTION,
// each perhaps with :VERSION or :ALIAS behind it.
func validFunction(name string) bool {
	parts := strings.Split(name, ":")
	if len(parts) >= 7 && strings.HasPrefix(name, "arn:") {
		if !functionWord(parts[1], 20) || parts[2] != "lambda" || !functionWord(parts[3], 30) {
			return false
		}
		parts = parts[4:]
	}
	if len(parts) >= 3 {
		if !accountID(parts[0]) || parts[1] != "function" {
			return false
		}
		parts = parts[2:]
	}
	return functionWord(parts[0], 64) && (len(parts) == 1 || len(parts) == 2 && (parts[1] == "$LATEST" || functionWord(parts[1], 128)))
}

// functionWord reports whether text is 1 to limit letters, digits, - and _.
func functionWord(text string, limit int) bool {
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return text != "" && len(text) <= limit
}

func accountID(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return len(text) == 12
}
