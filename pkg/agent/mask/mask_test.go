package mask_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/hostile"
	"github.com/countersign/countersign/pkg/agent/mask"
)

func TestB4NamesSayWhatIsASecret(t *testing.T) {
	for _, name := range []string{
		"password", "Password", "PASSWORD", "dbPassword", "db_password", "db-password", "db.password", "DB_PASSWORD_2", "passwd", "pwd", "passphrase",
		"secret", "client_secret", "clientSecret", "client-secret", "secretValue", "SECRETS", "token", "accessToken", "refresh_token", "authToken", "tokens",
		"apiKey", "api_key", "API-KEY", "APIKey", "apikey", "X-Api-Key", "openaiApiKey", "private_key", "privateKey", "secretKey", "access_key", "signing-key",
		"authorization", "Authorization", "Proxy-Authorization", "cookie", "Set-Cookie", "cookies", "credentials", "jwt", "bearer", "otp", "cvv", "sessionid", "Pass Word",
	} {
		require.True(t, mask.SecretName(name), name)
	}
	for _, name := range []string{
		"", "name", "key", "keys", "primary_key", "sort_key", "max_tokens", "inputTokens", "token_type", "tokenCount", "passwordPolicy", "password_length", "secretName", "secret_arn",
		"tokenizer", "secretary", "compass", "passenger", "bypass", "monkey", "authority", "author", "cookieless_x", "keyboard", "access", "accessibility", "privateNote", "apiVersion", "credentialId",
	} {
		require.False(t, mask.SecretName(name), name)
	}
}

func TestB4FormsOfSecrets(t *testing.T) {
	jwt := "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
	pem := "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nabc+/=\n-----END RSA PRIVATE KEY-----"
	for in, want := range map[string]string{
		"use AKIAIOSFODNN7EXAMPLE now":                           "use [masked] now",
		"sk_live_4eC39HqLyjWDarjtT1zdp7dc":                       "[masked]",
		"sk-proj-abcdefghijklmnop1234":                           "[masked]",
		"ghp_abcdefghijklmnopqrstuvwxyz0123456789":               "[masked]",
		"github_pat_11AAAAAAA0abcdefghij_klmnop":                 "[masked]",
		"xoxb-123456789012-abcdefghij":                           "[masked]",
		"https://hooks.slack.com/services/T0/B0/abcDEF12":        "https://[masked]",
		"AIzaSyA1234567890abcdefghijklmnopqrstuvw":               "[masked]",
		"jwt " + jwt + ", ok":                                    "jwt [masked], ok",
		"key:\n" + pem:                                           "key:\n[masked]",
		`{"k":"` + strings.ReplaceAll(pem, "\n", `\n`) + `"}`:    `{"k":"[masked]"}`,
		"-----BEGIN CERTIFICATE-----\nMIIE\n":                    "-----BEGIN CERTIFICATE-----\nMIIE\n",
		"Authorization: Bearer abcDEF123456789":                  "Authorization: [masked]",
		"curl -H 'Authorization: Basic dXNlcjpwYXNz' x":          "curl -H 'Authorization: [masked]' x",
		"send Bearer mF_9.B5f-4.1JqM to it":                      "send Bearer [masked] to it",
		"the bearer certificate, a basic understanding":          "the bearer certificate, a basic understanding",
		"postgres://app:s3cr3t@db.example:5432/x":                "postgres://app:[masked]@db.example:5432/x",
		"https://:p@ss@host/":                                    "https://:[masked]@host/",
		"https://bank.example/?a=b@c":                            "https://bank.example/?a=b@c",
		"Server=db;User Id=sa;Password=hunter2;Encrypt=yes":      "Server=db;User Id=sa;Password=[masked];Encrypt=yes",
		"DefaultEndpointsProtocol=https;AccountKey=abc123==;x=1": "DefaultEndpointsProtocol=https;AccountKey=[masked];x=1",
		"https://x.example/?api_key=abc123&page=2":               "https://x.example/?api_key=[masked]&page=2",
		"DB_PASSWORD=hunter2 make":                               "DB_PASSWORD=[masked] make",
		`DB_PASSWORD="two words" make`:                           `DB_PASSWORD="[masked]" make`,
		"mysql --password hunter2 -u root":                       "mysql --password [masked] -u root",
		`{"user":"ana","password":"hunter2"}`:                    `{"user":"ana","password":"[masked]"}`,
		`{\"password\":\"hunter2\"}`:                             `{\"password\":\"[masked]\"}`,
		"X-Api-Key: abc":                                         "X-Api-Key: [masked]",
		"Cookie: session=1; theme=dark":                          "Cookie: [masked]",
		"token: tok8f3a2b":                                       "token: [masked]",
		"max_tokens=500, tokens=5":                               "max_tokens=500, tokens=5",
		"the password is not in here: see the vault":             "the password is not in here: see the vault",
		"password: please reset":                                 "password: please reset",
		"4111 1111 1111 1111":                                    "4111 1111 1111 1111", // an amount or an order looks the same: see the decision record
	} {
		require.Equal(t, want, mask.Text(in), in)
	}
}

func TestB4SchemasSayWhatIsASecret(t *testing.T) {
	schema := `{"$defs":{"login":{"type":"object","properties":{"user":{},"word":{"writeOnly":true}}},"tree":{"properties":{"leaf":{"x-secret":true},"next":{"$ref":"#/$defs/tree"}}},
		"anchored":{"$anchor":"a","format":"password"}},
		"properties":{"plain":{"type":"string"},"word":{"format":"password"},"pin":{"type":"integer","x-secret":true},"login":{"$ref":"#/$defs/login"},
		"logins":{"type":"array","items":{"$ref":"#/$defs/login"}},"pair":{"prefixItems":[{},{"writeOnly":true}]},"either":{"anyOf":[{"type":"string"},{"properties":{"x":{"x-secret":true}}}]},
		"whole":{"writeOnly":true},"tree":{"$ref":"#/$defs/tree"},"anchored":{"$ref":"#a"},"map":{"additionalProperties":{"x-secret":true}}},
		"patternProperties":{"^k_":{"writeOnly":true}},"allOf":[{"properties":{"late":{"writeOnly":true}}}],"if":{},"then":{"properties":{"then":{"writeOnly":true}}}}`
	for args, want := range map[string]string{
		`{"plain":"a","word":"b"}`:                                    `{"plain":"a","word":"[masked]"}`,
		`{"pin":1234,"n":1.50}`:                                       `{"pin":"[masked]","n":1.50}`,
		`{"login":{"user":"u","word":"w"}}`:                           `{"login":{"user":"u","word":"[masked]"}}`,
		`{"logins":[{"word":"a"},{"word":"b","user":"c"}]}`:           `{"logins":[{"word":"[masked]"},{"word":"[masked]","user":"c"}]}`,
		`{"pair":["a","b","c"]}`:                                      `{"pair":["a","[masked]","c"]}`,
		`{"either":{"x":"y","z":"w"}}`:                                `{"either":{"x":"[masked]","z":"w"}}`,
		`{"whole":{"a":[1,"b"]}}`:                                     `{"whole":"[masked]"}`,
		`{"tree":{"leaf":"a","next":{"leaf":"b","next":{"leaf":1}}}}`: `{"tree":{"leaf":"[masked]","next":{"leaf":"[masked]","next":{"leaf":"[masked]"}}}}`,
		`{"anchored":"a"}`:                                            `{"anchored":"[masked]"}`,
		`{"map":{"x":"y"}}`:                                           `{"map":{"x":"[masked]"}}`,
		`{"k_1":"a","late":"b","then":"c","other":"d"}`:               `{"k_1":"[masked]","late":"[masked]","then":"[masked]","other":"d"}`,
		`{"password":"a","tokens":5,"token":true,"secret":{"a":["b",1,null]},"credentials":[]}`: `{"password":"[masked]","tokens":5,"token":true,"secret":{"a":["[masked]",1,null]},"credentials":[]}`,
		`{"note":"\u0061bc","text":"use AKIAIOSFODNN7EXAMPLE"}`:                                 `{"note":"\u0061bc","text":"use [masked]"}`,
		`{"AKIAIOSFODNN7EXAMPLE":1}`:                                                            `{"[masked]":1}`,
		`{"password":""}`:                                                                       `{"password":""}`,
		`not JSON password=hunter2`:                                                             `not JSON password=[masked]`,
	} {
		require.Equal(t, want, mask.JSON(json.RawMessage(args), json.RawMessage(schema)), args)
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

func TestTheCorpusIsReadAsItIs(t *testing.T) {
	for _, c := range hostile.All() {
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
		require.Equal(t, before+mask.Placeholder+after, mask.Text(before+secret+after))
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
