package mask

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// findNamed finds the values behind names that mark secrets, and the passwords of addresses.
func (f *finder) findNamed() {
	for at := 0; ; at++ {
		next := strings.IndexAny(f.text[at:], "=:-")
		if next < 0 {
			return
		}
		at += next
		switch f.text[at] {
		case '=':
			at = f.assignment(at)
		case ':':
			if strings.HasPrefix(f.text[at:], "://") {
				f.address(at)
				continue
			}
			at = f.member(at)
		case '-':
			at = f.option(at)
		}
	}
}

// assignment takes NAME=value, name="value" and name = value. A shell would run what stands behind "NAME= ".
func (f *finder) assignment(at int) (next int) {
	end, behind := at, at+1
	if f.at(at-1) == ' ' || f.at(at-1) == '\t' {
		if behind = f.spaces(at + 1); behind == at+1 {
			return at
		}
		for end = at - 1; end > 0 && (f.text[end-1] == ' ' || f.text[end-1] == '\t') && at-end < longestName; end-- {
			continue
		}
	}
	name, _ := f.nameBefore(end, false)
	if f.at(behind) == '=' || !SecretName(name) || f.refersTo(name) {
		return at
	}
	r, _, ok := f.value(behind)
	if !ok || r.To-r.From <= 3 && strings.Trim(f.text[r.From:r.To], "0123456789") == "" { // a count: tokens=5
		return at
	}
	return f.take(r)
}

// refersTo reports whether the text uses a variable of that name: then its value may be a part of a command.
func (f *finder) refersTo(name string) bool {
	if f.used == nil {
		f.used = map[string]bool{}
		for at := 0; ; at++ {
			next := strings.IndexAny(f.text[at:], "$%!")
			if next < 0 {
				break
			}
			at += next
			from := at + 1
			for f.at(from) == '{' || f.at(from) == '!' || f.at(from) == '#' {
				from++
			}
			if strings.HasPrefix(strings.ToLower(f.text[from:min(from+4, len(f.text))]), "env:") {
				from += 4
			}
			to := f.wordEnd(from, "_", longestName)
			f.used[strings.ToLower(f.text[from:to])] = true
		}
	}
	return f.used[strings.ToLower(name)]
}

// member takes what a colon stands before: a header's value, or that of a member of JSON or YAML.
func (f *finder) member(at int) (next int) {
	if f.at(at-1) == '"' || f.at(at-1) == '\'' { // "name": "value", with whatever backslashes before the quotes
		end := at - 1
		for end > 0 && f.text[end-1] == '\\' {
			end--
		}
		name, from := f.nameBefore(end, true)
		if !strings.HasSuffix(f.text[:from], f.text[end:at]) || !SecretName(name) {
			return at
		}
		if r, quoted, ok := f.value(f.spaces(at + 1)); ok && quoted {
			return f.take(r)
		}
		return at
	}
	name, _ := f.nameBefore(at, false)
	if !SecretName(name) {
		return at
	}
	if name = strings.ToLower(name); isHeader(name) {
		return f.header(name, at+1)
	}
	behind := f.spaces(at + 1)
	r, _, ok := f.value(behind)
	if word := f.text[r.From:r.To]; ok && behind > at+1 && len(word) >= 6 && isRandomWord(word) &&
		!strings.ContainsAny(word, ".:") {
		return f.take(r)
	}
	return at
}

func isHeader(name string) bool {
	switch name {
	case "authorization", "proxy-authorization", "cookie", "set-cookie", "api-key":
		return true
	}
	return strings.HasPrefix(name, "x-")
}

// schemes stand before the credentials of an Authorization header.
var schemes = []string{"bearer", "basic", "digest", "token", "apikey", "negotiate", "bot"}

// header takes the value of a header: what stands behind the scheme of an Authorization, or the values of cookies; else
// all of it.
func (f *finder) header(name string, at int) (next int) {
	at = f.spaces(at)
	if strings.HasSuffix(name, "cookie") {
		f.cookies(at)
		return at - 1
	}
	end := f.runEnd(at)
	scheme := strings.HasSuffix(name, "authorization") &&
		slices.Contains(schemes, strings.ToLower(f.text[at:min(end, at+longestName)]))
	if scheme {
		at = f.spaces(end)
		end = f.runEnd(at)
	}
	word := f.text[at:end]
	if word == "" || isReference(word) || !f.endsLine(end) && (!f.endsWord(end) || !isRandomWord(word)) {
		return at - 1
	}
	return f.take(Range{at, end})
}

// endsLine reports whether a line, or the quotes around it, end at a place.
func (f *finder) endsLine(at int) bool {
	_, quoted := f.quote(at)
	return quoted || at == len(f.text) || f.text[at] == '\n' || f.text[at] == '\r'
}

// sessionWord ends a word in the names of cookies whose values sign somebody in, beside those that SecretName knows.
var sessionWord = regexp.MustCompile(`(session|sessionid|sess|sid|auth|csrf|xsrf)$`)

// cookies takes the values of name=value; name=value up to the first that is no such pair.
func (f *finder) cookies(at int) {
	for {
		from := at
		at = f.wordEnd(from, "_-.", len(f.text))
		name := f.text[from:at]
		if name == "" || f.at(at) != '=' {
			return
		}
		end := f.runEnd(at + 1)
		value := f.text[at+1 : end]
		if !f.endsWord(end) {
			return
		}
		signsIn := SecretName(name) || slices.ContainsFunc(words(name), sessionWord.MatchString)
		if value != "" && !isReference(value) && (signsIn || len(value) >= 16 && isRandomWord(value)) {
			f.hide(at+1, end)
		}
		if f.at(end) != ';' {
			return
		}
		at = f.spaces(end + 1)
	}
}

// What makes of an option one that takes no secret: a first word that does something, or a name for what is kept
// elsewhere.
var (
	doing = strings.Fields("no ask prompt use with without skip reset show enable disable generate get set print " +
		"require allow verify rotate revoke delete remove create list add update put to from")
	kept = strings.Fields("secret secrets credential credentials cookie cookies authorization tokens passwords")
)

// option takes --name value. Many options of such names take no value, so what follows has to look like a secret, and
// not like a host.
func (f *finder) option(at int) (next int) {
	if at > 0 && strings.IndexByte(" \t\r\n\"'", f.text[at-1]) < 0 {
		return at
	}
	from := at + 1
	if f.at(from) == '-' {
		from++
	}
	end := f.wordEnd(from, "-_", longestName)
	name, behind := f.text[from:end], f.spaces(end)
	if ws := words(name); behind == end || !SecretName(name) || slices.Contains(doing, ws[0]) ||
		slices.Contains(kept, strings.Join(ws, "")) {
		return at
	}
	r, _, ok := f.value(behind)
	if word := f.text[r.From:r.To]; !ok || !isRandomWord(word) || strings.ContainsAny(word, "./:") {
		return at
	}
	return f.take(r)
}

// address takes the password of scheme://user:password@host, and a long random user. Nothing is taken where not every
// reader agrees on the host: with another @ or a backslash before its end.
func (f *finder) address(at int) {
	if !isAlphanumeric(f.at(at - 1)) {
		return
	}
	from := at + len("://")
	end := from
	for end < len(f.text) && strings.IndexByte("/?#\"'<>", f.text[end]) < 0 {
		n := plainAt(f.text[end:])
		if f.text[end] == '@' {
			n = 1
		}
		if n == 0 {
			break
		}
		end += n
	}
	user, host, ok := strings.Cut(f.text[from:end], "@")
	if !ok || host == "" || strings.Contains(host, "@") || !f.endsWord(end) && strings.IndexByte("/?#", f.at(end)) < 0 {
		return
	}
	name, password, ok := strings.Cut(user, ":")
	switch {
	case ok && password != "" && !strings.Contains(password, ":"):
		f.hide(from+len(name)+1, from+len(user))
	case !ok && len(user) >= 16 && isRandomWord(user):
		f.hide(from, from+len(user))
	}
}

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

// words returns the words of a name in lower case: of camelCase, snake_case, kebab-case, dotted and spaced names,
// without digits at the end.
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
