package mask_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/badinput"
	"github.com/countersign/countersign/internal/people/mask"
)

func TestB4NamesSayWhatIsASecret(t *testing.T) {
	for _, name := range []string{
		"password", "Password", "PASSWORD", "dbPassword", "db_password", "db-password", "db.password", "DB_PASSWORD_2", "passwd", "pwd", "passphrase",
		"secret", "client_secret", "clientSecret", "client-secret", "secretValue", "TOKEN_PROD", "passwordConfirmation", "AWS_SECRET_ACCESS_KEY", "SECRETS", "token", "accessToken", "refresh_token", "authToken", "tokens",
		"apiKey", "api_key", "API-KEY", "APIKey", "apikey", "X-Api-Key", "openaiApiKey", "private_key", "privateKey", "secretKey", "access_key", "signing-key",
		"authorization", "Authorization", "Proxy-Authorization", "cookie", "Set-Cookie", "cookies", "credentials", "jwt", "bearer", "otp", "cvv", "sessionid", "Pass Word",
	} {
		require.True(t, mask.SecretName(name), name)
	}
	for _, name := range []string{
		"", "name", "key", "keys", "primary_key", "sort_key", "max_tokens", "inputTokens", "token_type", "tokenCount", "passwordPolicy", "password_length", "password_command", "credential.helper", "tokenRecipient", "token_to", "SECRET_FILE", "secretName", "secret_arn",
		"tokenizer", "secretary", "compass", "passenger", "bypass", "monkey", "authority", "author", "cookieless_x", "keyboard", "access", "accessibility", "privateNote", "apiVersion", "credentialId",
	} {
		require.False(t, mask.SecretName(name), name)
	}
}

// lengths puts placeholders in the places of [7].
func lengths(want string) string {
	return regexp.MustCompile(`\[(\d+)\]`).ReplaceAllStringFunc(want, func(n string) string {
		characters, _ := strconv.Atoi(n[1 : len(n)-1]) // the pattern has digits alone
		return mask.Placeholder(characters)
	})
}

func TestB4FormsOfSecrets(t *testing.T) {
	jwt := "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
	first, second := "MIIEowIBAAKCAQEA"+strings.Repeat("aB3/", 12), strings.Repeat("Zz9+", 16)
	pem := "-----BEGIN RSA PRIVATE KEY-----\n" + first + "\n" + second + "\nabc+/=\n-----END RSA PRIVATE KEY-----"
	noLines := func(s string) string {
		return strings.NewReplacer(first, "[64]", second, "[64]", "abc+/=", "[6]").Replace(s)
	}
	escaped := strings.ReplaceAll(pem, "\n", `\n`)
	indented := "key: |\n  " + strings.ReplaceAll(pem, "\n", "\r\n  ")
	short := "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nabc+/=\n-----END RSA PRIVATE KEY-----"
	for in, want := range map[string]string{
		"use AKIAIOSFODNN7EXAMPLE now":                                      "use [20] now",
		"use AKIAIOSFODNN7EXAMPLE.":                                         "use [20].",
		"sk_live_4eC39HqLyjWDarjtT1zdp7dc":                                  "[32]",
		"sk-proj-abcdefghijklmnop1234":                                      "[28]",
		"ghp_abcdefghijklmnopqrstuvwxyz0123456789":                          "[40]",
		"github_pat_11AAAAAAA0abcdefghij_klmnop":                            "[38]",
		"xoxb-123456789012-abcdefghij":                                      "[28]",
		"https://hooks.slack.com/services/T0/B0/abcDEF12":                   "https://hooks.slack.com/services/T0/B0/[8]",
		"AIzaSyA1234567890abcdefghijklmnopqrstuvw":                          "[40]",
		"gldt-Ab3-dE5_gH7jK9mN1pQ":                                          "[24]",
		"dapi0123456789abcdef0123456789abcdef":                              "[36]",
		"use hvs.CAESIJ8a7Wq3vX2b9KfLmZ0pRtYu.":                             "use [32].",
		"glc_eyJvIjoiMTIzNDU2Iiwi/biI6In+Rlc3QifQ==":                        "[42]",
		"the duffel_bag, pul-overs and sgp_style_guide":                     "the duffel_bag, pul-overs and sgp_style_guide",
		"jwt " + jwt + ", ok":                                               "jwt [49], ok",
		"key:\n" + pem:                                                      "key:\n" + noLines(pem),
		`{"k":"` + escaped + `"}`:                                           `{"k":"` + noLines(escaped) + `"}`,
		indented:                                                            noLines(indented),
		short:                                                               strings.NewReplacer("MIIEowIBAAKCAQEA", "[16]", "abc+/=", "[6]").Replace(short),
		"-----BEGIN PRIVATE KEY-----" + first + "-----END PRIVATE KEY-----": "-----BEGIN PRIVATE KEY-----[64]-----END PRIVATE KEY-----",
		"-----BEGIN CERTIFICATE-----\n" + first + "\n":                      "-----BEGIN CERTIFICATE-----\n" + first + "\n",
		"Authorization: Bearer abcDEF123456789":                             "Authorization: Bearer [15]",
		"authorization: AbcDEF123456789\nx":                                 "authorization: [15]\nx",
		"curl -H 'Authorization: Basic dXNlcjpwYXNz' x":                     "curl -H 'Authorization: Basic [12]' x",
		"send Bearer mF_9.B5f-4.1JqM to it":                                 "send Bearer [15] to it",
		"the bearer certificate, a basic understanding":                     "the bearer certificate, a basic understanding",
		"postgres://app:s3cr3t@db.example:5432/x":                           "postgres://app:[6]@db.example:5432/x",
		"https://u:a%2Bb%3D@host/":                                          "https://u:[8]@host/",
		"https://ghp0123456789abcdef@github.com/x":                          "https://[19]@github.com/x",
		"https://bank.example/?a=b@c":                                       "https://bank.example/?a=b@c",
		"Server=db;User Id=sa;Password=hunter2;Encrypt=yes":                 "Server=db;User Id=sa;Password=[7];Encrypt=yes",
		"DefaultEndpointsProtocol=https;AccountKey=abc123==;x=1":            "DefaultEndpointsProtocol=https;AccountKey=[8];x=1",
		"https://x.example/?api_key=abc123&page=2":                          "https://x.example/?api_key=[6]&page=2",
		"DB_PASSWORD=hunter2 make":                                          "DB_PASSWORD=[7] make",
		"password = hunter2\nuser = ana":                                    "password = [7]\nuser = ana",
		`DB_PASSWORD="two-words" make`:                                      `DB_PASSWORD="[9]" make`,
		"mysql --password hunter2 -u root":                                  "mysql --password [7] -u root",
		"mysql --password=hunter2 -u root":                                  "mysql --password=[7] -u root",
		`{"user":"ana","password":"hunter2"}`:                               `{"user":"ana","password":"[7]"}`,
		`{\"password\":\"hunter2\"}`:                                        `{\"password\":\"[7]\"}`,
		"X-Api-Key: abc":                                                    "X-Api-Key: [3]",
		"Cookie: session=1; theme=dark":                                     "Cookie: session=[1]; theme=dark",
		"token: tok8f3a2b":                                                  "token: [9]",
		`token: "tok8f3a2b"`:                                                `token: "[9]"`,
		"max_tokens=500, tokens=5":                                          "max_tokens=500, tokens=5",
		"the password is not in here: see the vault":                        "the password is not in here: see the vault",
		"password: please reset":                                            "password: please reset",
		"4111 1111 1111 1111":                                               "4111 1111 1111 1111", // an amount or an order looks the same: see the decision record
	} {
		require.Equal(t, lengths(want), mask.Text(in), in)
	}
}

// Whoever writes a text chooses the names in it. Nothing that runs, or that is paid, can be put out of sight behind one: all of these are
// shown as they are, but for the parts in brackets.
func TestB4NothingThatRunsIsMasked(t *testing.T) {
	key := "-----BEGIN PRIVATE KEY-----\n"
	for in, want := range map[string]string{
		`TOKEN="$(rm -rf /srv/data)" ./deploy.sh`:          "",
		"TOKEN=$(rm -rf /srv/data) ./deploy.sh":            "",
		"TOKEN=`reboot` ./deploy.sh":                       "",
		"TOKEN=abc$(reboot) ./deploy.sh":                   "",
		`TOKEN=abc"$(reboot)" ./deploy.sh`:                 "",
		`TOKEN=abc""$(reboot) ./deploy.sh`:                 "",
		"TOKEN=a1b2c3;reboot":                              "TOKEN=[6];reboot",
		"TOKEN= reboot":                                    "",
		"TOKEN=\nreboot":                                   "",
		"TOKEN=rm; $TOKEN -rf /srv":                        "",
		`TOKEN=rm ARGS=/srv; "${TOKEN}" -rf`:               "",
		"set TOKEN=format&&%TOKEN% c:":                     "",
		`PASSWORD='a b' x`:                                 "",
		`PASSWORD=a\ b x`:                                  "",
		`login --password "$(curl evil.example)"`:          "",
		`login --password "correct horse" x`:               "",
		"psql --password evil_db":                          "",
		"docker login --password-stdin evil2.example":      "",
		"docker login --password evil2.example":            "",
		"sudo --reset-password mallory99":                  "",
		"gcloud --secret prod-db-2":                        "",
		"restic --password-command=/tmp/evil2":             "",
		"RESTIC_PASSWORD_COMMAND=/tmp/evil2":               "",
		"git -c credential.helper=/tmp/evil2 fetch":        "",
		"PASSWORD=/tmp/evil2.sh x":                         "",
		"cookie: x; rm -rf /srv":                           "",
		"Cookie: a=1; rm -rf /srv":                         "",
		"cookie: x=1; to=mallory; amount=100000":           "",
		"Authorization: Bearer $(reboot)":                  "",
		"Authorization: pay mallory99 now":                 "",
		"basic\nmallory2026":                               "",
		"Bearer\nmallory2026mallory2026":                   "",
		"transfer token mallory2026 now":                   "",
		key + "rm -rf /srv":                                "",
		key + "reboot\n":                                   "",
		key + "/usr/sbin/poweroff\n":                       "",
		key + "MIIEowIBAAKCAQEA; reboot":                   "",
		key + "MIIEowIBAAKCAQEA\nreboot\nrm -rf /srv":      key + "[16]\nreboot\nrm -rf /srv",
		key + "MIIEowIBAAKCAQEA && reboot":                 "",
		"-----BEGIN PRIVATE KEY-----; reboot":              "",
		`https://u:x@evil\@good/`:                          "",
		"https://u:x@evil@good/":                           "",
		"https://u:x%40evil%2F@good/":                      "",
		"https://u:x%5C@good/":                             "",
		"https://u:x/@good/":                               "",
		"https://u:a b@good/":                              "",
		"https://u:x@evil/@good/":                          "https://u:[1]@evil/@good/",
		"x?token=a%0aTo:%20mallory":                        "",
		"x?token=a%2524b":                                  "",
		"x?token=mallory@evil.example":                     "",
		"token=https://evil.example/":                      "",
		"token=DE89370400440532013000":                     "",
		"token=0x52908400098527886E0F7030069857D2E4169EE7": "",
		"token: {to: mallory99}":                           "",
		`token: {"to":"mallory99"}`:                        "",
		`{"token":{"to":"mallory99"}}`:                     "",
		"tokenRecipient=mallory99":                         "",
		"token_to: mallory99":                              "",
		"sh ./ghp_abcdefghijklmnopqrstuvwxyz":              "",
		"sh ghp_abcdefghijklmnopqrstuvwxyz.sh":             "",
		"pay sk-cleanup-everything-2":                      "",
		"pay ghp_abcdefghijklmnop1234@evil.example":        "",
		"run eyJybS1yZg.cm0gLXJmIC8.x":                     "",
		"PASSWORD=ab\u202ecd x":                            "",
		"PASSWORD=ab\u00a0cd x":                            "",
		"PASSWORD={rm,-rf,/srv}":                           "",
	} {
		if want == "" {
			want = in
		}
		require.Equal(t, lengths(want), mask.Text(in), in)
	}
}

// Arguments are judged by the same rules; an object is never put out of sight.
func TestB4ArgumentsThatMeanSomethingAreShown(t *testing.T) {
	for args, want := range map[string]string{
		`{"token":{"to":"mallory"}}`:                      "",
		`{"token":[{"to":"mallory"}],"amount":1}`:         "",
		`{"token":["ab12","$(reboot)"]}`:                  `{"token":["[4]","$(reboot)"]}`,
		`{"password":"$(rm -rf /srv/data)"}`:              "",
		`{"secret":"TOKEN=\"$(reboot)\" x"}`:              "",
		`{"password":"a\nb"}`:                             "",
		`{"password":"mallory@evil.example"}`:             "",
		`{"token":"https://evil.example/"}`:               "",
		`{"token":"hunter2, please"}`:                     "",
		`{"token":{"password":"hunter2","to":"mallory"}}`: `{"token":{"password":"[7]","to":"mallory"}}`,
		`{"Authorization":"Bearer abc123"}`:               `{"Authorization":"Bearer [6]"}`,
		`{"cookie":"session=a1b2; to=mallory"}`:           `{"cookie":"session=[4]; to=mallory"}`,
		`{"password":"` + strings.Repeat("x", 300) + `"}`: `{"password":"[300]"}`,
	} {
		if want == "" {
			want = args
		}
		require.Equal(t, lengths(want), mask.JSON(json.RawMessage(args), nil), args)
	}
	schema := json.RawMessage(`{"properties":{"word":{"format":"password"}}}`)
	require.Equal(t, lengths(`{"word":"[13]"}`), mask.JSON([]byte(`{"word":"correct horse"}`), schema), "what the schema marks may have spaces")
	for _, run := range []string{"$(reboot)", "`reboot`", "x; reboot", "${IFS}x", "a | sh"} {
		args := `{"word":"` + run + `"}`
		require.Equal(t, args, mask.JSON([]byte(args), schema))
	}
}

// A long text costs no second, whatever is in it: the deadline is that of something which is not linear.
func TestB4LongTextsAreMaskedInTime(t *testing.T) {
	const size = 1 << 18
	for _, piece := range []string{
		"token=", "token=a@", "=", ":", "a:", "--x ", "--password ", "Cookie: a=1; ", "cookie:", "https://u:p@", "https://", "sk-", "eyJ", "Bearer ", "a", "-----BEGIN PRIVATE KEY-----\n",
		"MIIEowIBAAKCAQEA\n", "TOKEN=$", "${", `"password":"`, `\"`, "password: ", "x/y.z-", "%41", "东", "hooks.slack.com/services/",
	} {
		text := strings.Repeat(piece, size/len(piece))
		done := make(chan int)
		go func() { done <- len(mask.Secrets(text)) }()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatalf("%q, again and again, takes more than half a minute", piece)
		}
	}
}

func TestB4SchemasSayWhatIsASecret(t *testing.T) {
	schema := `{"$defs":{"a login":{"writeOnly":true},"login":{"type":"object","properties":{"user":{},"word":{"writeOnly":true}}},"tree":{"properties":{"leaf":{"x-secret":true},"next":{"$ref":"#/$defs/tree"}}},
		"anchored":{"$anchor":"a","format":"password"}},
		"properties":{"plain":{"type":"string"},"word":{"format":"password"},"pin":{"type":"integer","x-secret":true},"login":{"$ref":"#/$defs/login"},
		"logins":{"type":"array","items":{"$ref":"#/$defs/login"}},"pair":{"prefixItems":[{},{"writeOnly":true}]},"either":{"anyOf":[{"type":"string"},{"properties":{"x":{"x-secret":true}}}]},
		"whole":{"writeOnly":true},"tree":{"$ref":"#/$defs/tree"},"anchored":{"$ref":"#a"},"listed":{"$ref":"#/properties/either/anyOf/1"},"escaped":{"$ref":"#/$defs/a%20login"},"map":{"additionalProperties":{"x-secret":true}}},
		"patternProperties":{"^k_":{"writeOnly":true}},"allOf":[{"properties":{"late":{"writeOnly":true}}}],"if":{},"then":{"properties":{"then":{"writeOnly":true}}}}`
	for args, want := range map[string]string{
		`{"plain":"a","word":"b"}`:                                    `{"plain":"a","word":"[1]"}`,
		`{"pin":1234,"n":1.50}`:                                       `{"pin":"[4]","n":1.50}`,
		`{"login":{"user":"u","word":"w"}}`:                           `{"login":{"user":"u","word":"[1]"}}`,
		`{"logins":[{"word":"a"},{"word":"b","user":"c"}]}`:           `{"logins":[{"word":"[1]"},{"word":"[1]","user":"c"}]}`,
		`{"pair":["a","b","c"]}`:                                      `{"pair":["a","[1]","c"]}`,
		`{"either":{"x":"y","z":"w"}}`:                                `{"either":{"x":"[1]","z":"w"}}`,
		`{"whole":{"a":[1,"b"]}}`:                                     `{"whole":{"a":["[1]","[1]"]}}`,
		`{"tree":{"leaf":"a","next":{"leaf":"b","next":{"leaf":1}}}}`: `{"tree":{"leaf":"[1]","next":{"leaf":"[1]","next":{"leaf":"[1]"}}}}`,
		`{"anchored":"a"}`:                                            `{"anchored":"[1]"}`,
		`{"listed":{"x":"y","z":"w"}}`:                                `{"listed":{"x":"[1]","z":"w"}}`,
		`{"escaped":"a"}`:                                             `{"escaped":"[1]"}`,
		`{"map":{"x":"y"}}`:                                           `{"map":{"x":"[1]"}}`,
		`{"k_1":"a","late":"b","then":"c","other":"d"}`:               `{"k_1":"[1]","late":"[1]","then":"[1]","other":"d"}`,
		`{"password":"ab","tokens":5,"token":true,"secret":["b",1,null],"credentials":[]}`: `{"password":"[2]","tokens":5,"token":true,"secret":["[1]",1,null],"credentials":[]}`,
		`{"note":"\u0061bc","text":"use AKIAIOSFODNN7EXAMPLE"}`:                            `{"note":"\u0061bc","text":"use [20]"}`,
		`{"AKIAIOSFODNN7EXAMPLE":1}`:                                                       `{"[20]":1}`,
		`{"password":""}`:                                                                  `{"password":""}`,
		`not JSON password=hunter2`:                                                        `not JSON password=[7]`,
	} {
		require.Equal(t, lengths(want), mask.JSON(json.RawMessage(args), json.RawMessage(schema)), args)
	}
	v, err := mask.Read([]byte(`{"whole":{"a":[1]}}`), []byte(schema))
	require.NoError(t, err)
	require.Equal(t, mask.BySchema, v.Members[0].Value.Members[0].Value.Members[0].Value.Secret, "and all within it")
	require.Equal(t, `{"a":"b"}`, mask.JSON([]byte(`{"a":"b"}`), []byte(`not a schema`)))
}

// A schema whose alternatives name themselves is read once a level, not twice as often at each.
func TestSchemasThatNameThemselves(t *testing.T) {
	schema := `{"$defs":{"n":{"anyOf":[{"properties":{"a":{"$ref":"#/$defs/n"}}},{"properties":{"a":{"$ref":"#/$defs/n"}}},{"$ref":"#/$defs/n"}]}},"$ref":"#/$defs/n"}`
	args := strings.Repeat(`{"a":`, 60) + `"x"` + strings.Repeat(`}`, 60)
	require.Equal(t, args, mask.JSON([]byte(args), []byte(schema)))
}

// A schema with which arguments would be read for minutes is not read to its end, and what is behind that is masked.
func TestCostlySchemas(t *testing.T) {
	args := []byte(`{"a":1`)
	for i := range 200 {
		args = fmt.Appendf(args, `,"%s%d":2`, strings.Repeat("x", 1000), i)
	}
	for _, schema := range []string{`{"patternProperties":{"x{1,900}y$":{}}}`, `{"allOf":[{}` + strings.Repeat(`,{}`, 5000) + `]}`} {
		got := mask.JSON(append(args, `,"z":3}`...), []byte(schema))
		require.True(t, strings.HasPrefix(got, `{"a":1,`))
		require.True(t, strings.HasSuffix(got, lengths(`,"z":"[1]"}`)), got[len(got)-40:])
	}
}

func TestTheCorpusIsReadAsItIs(t *testing.T) {
	for _, c := range badinput.HostileTexts() {
		if c.JSON == nil {
			continue
		}
		v, err := mask.Read(c.Args(), nil)
		require.NoError(t, err, c.Comment)
		require.Equal(t, c.Text, v.Members[0].Value.Text, c.Comment)
		require.Equal(t, string(c.JSON), string(v.Members[0].Value.Raw), c.Comment)
	}
	_, err := mask.Read([]byte(`{"a":`), nil)
	require.ErrorIs(t, err, mask.ErrJSON)
}

// Whatever stands around a secret, nothing of it is left, and everything around it is.
func TestB4NothingOfASecretIsLeft(t *testing.T) {
	secrets := []string{"AKIAIOSFODNN7EXAMPLE", "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "xoxb-123456789012-abcdefghij", "sk_live_4eC39HqLyjWDarjtT1zdp7dc"}
	around := rapid.StringOfN(rapid.RuneFrom([]rune("ab \n\"'{}[],;()é東\u202e")), 0, 12, -1)
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.SampledFrom(secrets).Draw(t, "secret")
		before, after := around.Draw(t, "before"), around.Draw(t, "after")
		if strings.HasSuffix(before, "a") || strings.HasSuffix(before, "b") {
			before += " " // a word of its own
		}
		if strings.HasPrefix(after, "a") || strings.HasPrefix(after, "b") {
			after = " " + after
		}
		require.Equal(t, before+mask.Placeholder(len(secret))+after, mask.Text(before+secret+after))
		args, err := json.Marshal(map[string]any{"list": []any{map[string]string{before: before + secret + after}}})
		require.NoError(t, err)
		require.NotContains(t, mask.JSON(args, nil), secret)
	})
}

func FuzzMask(f *testing.F) {
	f.Add(`{"a":{"password":"x"},"b":[1,"AKIAIOSFODNN7EXAMPLE"]}`, `{"properties":{"a":{"writeOnly":true}}}`)
	f.Add(`{"a":"\ud83d\ude00\ud800"}`, `{"$ref":"#"}`)
	f.Fuzz(func(t *testing.T, args, schema string) {
		masked := mask.JSON([]byte(args), []byte(schema))
		if json.Valid([]byte(args)) {
			require.True(t, json.Valid([]byte(masked)), "%s", masked)
		}
		last := 0
		for _, r := range mask.Secrets(args) {
			require.True(t, last <= r.From && r.From < r.To && r.To <= len(args), fmt.Sprint(r))
			last = r.To
		}
	})
}
