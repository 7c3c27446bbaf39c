package mask

import (
	"slices"
	"strings"
	"unicode"
)

// The words of names that say that a value is a secret, and those that may stand beside them.
var (
	// secretWords do as the last word of a name: dbPassword, SECRET_2.
	secretWords = strings.Fields("password passwords passwd pwd passphrase passcode pass secret secrets credential " +
		"credentials creds authorization cookie cookies token tokens jwt bearer otp totp cvv cvc cvv2 apikey apikeys " +
		"privatekey secretkey accesskey signingkey sessionid authtoken accesstoken refreshtoken clientsecret xapikey " +
		"kennwort passwort contraseña")
	// secretKeys make a secret of the word key behind them: api_key, privateKey.
	secretKeys = strings.Fields("api private secret access signing encryption master account shared auth ssh host " +
		"service webhook license")
	// behind are the words that may follow those and leave the name a secret's: secretValue, password_confirmation,
	// TOKEN_PROD. Any other makes it the name of something else: token_type, passwordPolicy, --password-command,
	// tokenRecipient.
	behind = strings.Fields("value text string plain plaintext old new current previous next primary secondary confirm " +
		"confirmation repeat again prod production staging dev test live base hash header encoded raw")
	// counted, as the first word before tokens, say that they are those of a model: max_tokens, inputTokens.
	counted = strings.Fields("max min num n total input output prompt completion used")
)

// SecretName reports whether the name of a member says that its value is a secret. Spelling does not matter: apiKey,
// api_key, API-KEY, x-api-key and apikey are one.
func SecretName(name string) bool {
	ws := words(name)
	if len(ws) == 0 {
		return false
	}
	if slices.Contains(secretWords, strings.Join(ws, "")) { // Pass Word, api-key, session_id
		return true
	}
	for len(ws) > 1 && slices.Contains(behind, ws[len(ws)-1]) {
		ws = ws[:len(ws)-1]
	}
	last := ws[len(ws)-1]
	if len(ws) > 1 && (last == "key" || last == "keys") {
		return slices.Contains(secretKeys, ws[len(ws)-2]) || slices.Contains(secretWords, ws[len(ws)-2])
	}
	return slices.Contains(secretWords, last) && (last != "tokens" || !slices.Contains(counted, ws[0]))
}

// words are the words of a name, in lower case: of camelCase, snake_case, kebab-case, dotted and spaced names, without
// digits at their end.
func words(name string) []string {
	var all []string
	var w []rune
	end := func() {
		if word := strings.TrimRight(strings.ToLower(string(w)), "0123456789"); word != "" {
			all = append(all, word)
		}
		w = nil
	}
	rs := []rune(name)
	for i, r := range rs {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
			continue
		case i > 0 && unicode.IsUpper(r) && (unicode.IsLower(rs[i-1]) || unicode.IsDigit(rs[i-1])):
			end() // apiKey
		case i > 0 && i+1 < len(rs) && unicode.IsUpper(r) && unicode.IsUpper(rs[i-1]) && unicode.IsLower(rs[i+1]):
			end() // APIKey
		}
		w = append(w, r)
	}
	end()
	return all
}
