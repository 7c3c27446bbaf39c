package agentfile

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// httpFile is an agent whose tools begin in line 5.
func httpFile(dir, tools string) (agent.Definition, error) {
	return Parse("agent.yaml", []byte("name: a\nsystem: s\nmodel: {provider: bedrock, id: m}\ntools:\n"+tools), Options{Dir: dir})
}

func TestHTTPTools(t *testing.T) {
	d, err := httpFile("", `  - name: orders.pay
    kind: http
    description: Pays an order.
    method: post
    url: https://api.example/orders/{order}/pay?v=2
    headers: {Authorization: "Bearer ${secret:ORDERS_KEY}"}
    query: {note: "{note}"}
    body: {amount: "{amount}", by: "agent {order}"}
    allowHosts: [cdn.example, "files.example:8443"]
    timeout: 30s
    schema: {type: object, properties: {order: {type: string}, note: {type: string}, amount: {type: number}}, required: [order]}
  - {name: look, kind: http, url: "https://api.example"}
  - {name: head, kind: http, method: HEAD, url: "https://api.example", effect: idempotent}
  - {name: put, kind: http, method: PUT, url: "https://api.example"}
  - {name: drop, kind: http, method: DELETE, url: "https://api.example", effect: idempotent}
`)
	require.NoError(t, err)
	require.Equal(t, agent.ToolSpec{
		Name: "orders.pay", Kind: agent.KindHTTP, Description: "Pays an order.", Effect: run.EffectNonIdempotent, Timeout: 30 * time.Second,
		Schema: json.RawMessage(`{"type":"object","properties":{"order":{"type":"string"},"note":{"type":"string"},"amount":{"type":"number"}},"required":["order"]}`),
		HTTP: &agent.HTTPTool{
			Method: "POST", URL: "https://api.example/orders/{order}/pay?v=2", Headers: map[string]string{"Authorization": "Bearer ${secret:ORDERS_KEY}"},
			Query: map[string]string{"note": "{note}"}, Body: json.RawMessage(`{"amount":"{amount}","by":"agent {order}"}`), Allow: []string{"cdn.example", "files.example:8443"},
		},
	}, d.Tools[0])
	var effects []run.Effect
	for _, tool := range d.Tools[1:] {
		effects = append(effects, tool.Effect)
	}
	require.Equal(t, []run.Effect{run.EffectRead, run.EffectIdempotent, run.EffectNonIdempotent, run.EffectIdempotent}, effects)
	require.Equal(t, "GET", d.Tools[1].HTTP.Method)
}

// Every mistake is told with its line and key, and nothing of a value that may be a secret.
func TestHTTPToolsAreRefused(t *testing.T) {
	const schema = "schema: {type: object, properties: {id: {type: string}, q: {type: string}}, required: [id]}"
	for name, c := range map[string]struct{ keys, want string }{
		"no URL":                  {"method: GET", "tools[0].url: "},
		"another method":          {`method: TRACE, url: "https://x.example"`, "tools[0].method: "},
		"another scheme":          {`url: "ftp://x.example"`, "tools[0].url: want http:// or https://"},
		"a host as a template":    {`url: "https://{id}.example/"`, "tools[0].url: want a host as it is"},
		"a host as a secret":      {`url: "https://${secret:HOST}/"`, "tools[0].url: want a host as it is"},
		"a user":                  {`url: "https://canary:canary@x.example/"`, "tools[0].url: want a host as it is, without a user"},
		"a decimal host":          {`url: "https://2130706433/"`, "tools[0].url: got host"},
		"a homograph":             {`url: "https://exаmple.com/"`, "tools[0].url: got host"},
		"a fragment":              {`url: "https://x.example/#canary"`, "tools[0].url: want no fragment"},
		"dots":                    {`url: "https://x.example/a/../b"`, "tools[0].url: got . or .. in the path"},
		"no such argument":        {`url: "https://x.example/{other}"`, "tools[0].url: got {other}, want the name of a property"},
		"an optional path":        {`url: "https://x.example/{q}"`, "tools[0].url: got {q} in the path, want a property that schema requires"},
		"a brace":                 {`url: "https://x.example/{a b}"`, "tools[0].url: "},
		"a bad secret":            {`url: "https://x.example/${secret:a/canary}"`, "tools[0].url: want ${secret:NAME}"},
		"a template as a key":     {`url: "https://x.example/?{id}=1"`, "tools[0].url: got a template as the name"},
		"a parameter twice":       {`url: "https://x.example/?q=1", query: {q: "{q}"}`, "tools[0].url: got a query parameter that query has, too"},
		"a query's argument":      {`url: "https://x.example", query: {q: "{other}"}`, "tools[0].query.q: got {other}"},
		"a host header":           {`url: "https://x.example", headers: {Host: canary}`, "tools[0].headers.Host: got a header field that is not the tool's"},
		"an idempotency key":      {`url: "https://x.example", headers: {idempotency-key: canary}`, "tools[0].headers.idempotency-key: "},
		"a header twice":          {`url: "https://x.example", headers: {X-A: a, x-a: b}`, "tools[0].headers.x-a: got a header field a second time"},
		"a header of two lines":   {`url: "https://x.example", headers: {X-A: "a\r\ncanary"}`, "tools[0].headers.X-A: got a control character"},
		"another type of body":    {`method: POST, url: "https://x.example", headers: {Content-Type: text/canary}`, "tools[0].headers.Content-Type: got another type"},
		"a body of GET":           {`url: "https://x.example", body: {a: "{id}"}`, "tools[0].body: got a body, want none"},
		"a body's argument":       {`method: POST, url: "https://x.example", body: {a: ["{other}"]}`, "tools[0].body: got {other}"},
		"a body's secret":         {`method: POST, url: "https://x.example", body: {a: "${secret:}"}`, "tools[0].body: want ${secret:NAME}"},
		"another host as a URL":   {`url: "https://x.example", allowHosts: ["https://y.example"]`, "tools[0].allowHosts[0]: "},
		"another host as pattern": {`url: "https://x.example", allowHosts: ["*.example"]`, "tools[0].allowHosts[0]: "},
		"a number as a header":    {`url: "https://x.example", headers: {X-A: 3}`, "tools[0].headers.X-A: got a number, want a string"},
		"an operation alone":      {`operation: getPet`, "tools[0].openapi: want both openapi, a file, and operation"},
		"a document alone":        {`openapi: petstore.yaml`, "tools[0].openapi: want both"},
		"a server alone":          {`url: "https://x.example", server: "https://y.example"`, "tools[0].server: got a server, want none"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := httpFile("testdata", "  - {name: x, kind: http, "+c.keys+", "+schema+"}\n")
			require.ErrorContains(t, err, "agent.yaml:5: ")
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "canary")
		})
	}
	_, err := Parse("agent.yaml", []byte("name: a\nsystem: s\nmodel: {provider: bedrock, id: m}\ntools:\n  - {name: s, kind: service, url: \"https://x.example\"}\n"), Options{})
	require.ErrorContains(t, err, "agent.yaml:5: tools[0].url: got a request, want none: only kind http has one")
}

func TestOperations(t *testing.T) {
	d, err := httpFile("testdata", `  - {name: pets.get, kind: http, openapi: petstore.yaml, operation: getPet, query: {api_key: "${secret:PETS}"}, headers: {X-Own: "1"}}
  - {kind: http, openapi: petstore.yaml, operation: updatePet, description: Ours., effect: idempotent}
  - {kind: http, openapi: petstore.yaml, operation: addPets, server: "https://other.example/base"}
  - {kind: http, openapi: petstore.yaml, operation: removePet}
`)
	require.NoError(t, err)
	get, update, add := d.Tools[0], d.Tools[1], d.Tools[2]
	require.Equal(t, &agent.HTTPTool{
		Method: "GET", URL: "https://eu.pets.example/v1/pets/{petId}", Headers: map[string]string{"X-Own": "1", "X-Trace": "{X-Trace}"},
		Query: map[string]string{"api_key": "${secret:PETS}", "fields": "{fields}", "limit": "{limit}"},
	}, get.HTTP)
	require.Equal(t, []any{"One pet.", run.EffectRead, "pets.get"}, []any{get.Description, get.Effect, get.Name})
	require.JSONEq(t, `{"type":"object","required":["petId"],"properties":{"petId":{"type":"integer"},"X-Trace":{"type":"string"},
		"fields":{"type":"array","items":{"type":"string"},"description":"Which to show"},"limit":{"type":["integer","null"],"exclusiveMinimum":0}}}`, string(get.Schema))

	require.Equal(t, &agent.HTTPTool{
		Method: "PUT", URL: "https://eu.pets.example/v1/pets/{petId}", Headers: map[string]string{"Content-Type": "application/merge-patch+json"},
	}, update.HTTP)
	require.Equal(t, []any{"Ours.", run.EffectIdempotent, "updatePet"}, []any{update.Description, update.Effect, update.Name})
	const pet = `"name":{"type":"string"},"mother":{"description":"as Pet"},"kind":{"type":["string","null"],"enum":["dog","cat",null]}`
	require.JSONEq(t, `{"type":"object","required":["name","petId"],"properties":{"petId":{"type":"integer"},`+pet+`}}`, string(update.Schema))

	require.Equal(t, &agent.HTTPTool{Method: "POST", URL: "https://other.example/base/pets", Body: json.RawMessage(`"{body}"`)}, add.HTTP)
	require.JSONEq(t, `{"type":"object","properties":{"body":{"type":"array","items":{"type":"object","required":["name"],"properties":{`+pet+`}}}}}`, string(add.Schema))
	require.Equal(t, run.EffectNonIdempotent, add.Effect)

	remove := d.Tools[3]
	require.Equal(t, &agent.HTTPTool{Method: "DELETE", URL: "https://eu.pets.example/v1/pets/{petId}", Body: json.RawMessage(`"{body}"`)}, remove.HTTP)
	require.JSONEq(t, `{"type":"object","required":["body","petId"],"properties":{"petId":{"type":"integer"},"body":{"type":"object","properties":{"why":{"type":"string"}}}}}`, string(remove.Schema))

	again, err := httpFile("testdata", `  - {name: pets.get, kind: http, openapi: petstore.yaml, operation: getPet, query: {api_key: "${secret:PETS}"}, headers: {X-Own: "1"}}`+"\n")
	require.NoError(t, err)
	require.Equal(t, string(get.Schema), string(again.Tools[0].Schema), "the same each time")
}

// Claude refuses other names of arguments, and the parameters of a place and another may have one name.
func TestNamesOfArguments(t *testing.T) {
	files := fstest.MapFS{"odata.json": {Data: []byte(`{"openapi":"3.1.0","servers":[{"url":"https://x.example"}],"paths":{"/a/{id}/{the part}":{"post":{"operationId":"x",
		"parameters":[{"name":"id","in":"path","required":true,"schema":{}},{"name":"the part","in":"path","required":true,"schema":{}},
		{"name":"id","in":"query","schema":{}},{"name":"$filter","in":"query","required":true,"schema":{}},{"name":"page[size]","in":"query","schema":{}}],
		"requestBody":{"content":{"application/json":{"schema":{"properties":{"@type":{}}}}}}}}}}`)}}
	d, err := Parse("agent.yaml", []byte(`{name: a, system: s, model: {provider: bedrock, id: m}, tools: [{kind: http, openapi: odata.json, operation: x}]}`), Options{Files: files})
	require.NoError(t, err)
	require.Equal(t, &agent.HTTPTool{Method: "POST", URL: "https://x.example/a/{id}/{the_part}", Body: json.RawMessage(`"{body}"`),
		Query: map[string]string{"id": "{id_query}", "$filter": "{filter}", "page[size]": "{page_size}"}}, d.Tools[0].HTTP)
	require.JSONEq(t, `{"type":"object","required":["filter","id","the_part"],"properties":{"id":{},"the_part":{},"id_query":{},"filter":{},"page_size":{},
		"body":{"properties":{"@type":{}}}}}`, string(d.Tools[0].Schema))
}

// countingFiles counts how often a file of it is opened.
type countingFiles struct {
	fs.FS
	opened int
}

func (f *countingFiles) Open(name string) (fs.File, error) {
	f.opened++
	return f.FS.Open(name)
}

// The document of an API may have 12 MB, and an agent many tools of it.
func TestADocumentIsReadOnce(t *testing.T) {
	files := &countingFiles{FS: os.DirFS("testdata")}
	_, err := Parse("agent.yaml", []byte(`{name: a, system: s, model: {provider: bedrock, id: m}, tools: [
		{kind: http, openapi: petstore.yaml, operation: getPet}, {kind: http, openapi: petstore.yaml, operation: removePet}]}`), Options{Files: files})
	require.NoError(t, err)
	require.Equal(t, 1, files.opened)
}

func TestOperationsAreRefused(t *testing.T) {
	dir := t.TempDir()
	pets, err := os.ReadFile("testdata/petstore.yaml")
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "agent"), 0o700))
	for name, text := range map[string]string{
		"agent/pets.yaml": string(pets), "outside.yaml": string(pets), "agent/old.json": `{"swagger":"2.0"}`, "agent/bad.json": `{"openapi":"3.1.0"`,
		"agent/bad.yaml": "openapi: 3.0.0\n\t- canary", "agent/anchor.yaml": "openapi: &a 3.0.0\nb: *a\n",
		"agent/twice.json": `{"openapi":"3.1.0","paths":{"/a":{"get":{"operationId":"x"}},"/b":{"get":{"operationId":"x"}}}}`,
		"agent/deep.json":  `{"openapi":"3.1.0","servers":[{"url":"https://x.example"}],"paths":{"/a":{"post":{"operationId":"x","requestBody":{"content":{"application/json":{"schema":` + strings.Repeat(`{"items":`, 60) + "{}" + strings.Repeat("}", 60) + `}}}}}}}`,
		"agent/none.json":  `{"openapi":"3.1.0","paths":{"/a":{"get":{"operationId":"x"}}}}`,
		"agent/rel.json":   `{"openapi":"3.1.0","servers":[{"url":"/v1"}],"paths":{"/a":{"get":{"operationId":"x"}}}}`,
		"agent/leak.json": `{"openapi":"3.1.0","servers":[{"url":"https://x.example/${secret:A}"}],"paths":{"/${secret:A}":{"get":{"operationId":"x"}},"y":{"get":{"operationId":"y"}},
			"/z":{"post":{"operationId":"z","requestBody":{"content":{"a/${secret:A}+json":{"schema":{}}}}}}}}`,
		"agent/kind.json":  `{"openapi":"3.1.0","servers":[{"url":"https://x.example"}],"paths":{"/a":{"get":{"operationId":"x","parameters":[{"name":"q","in":"query","required":"canary"}]}}}}`,
		"agent/never.json": `{"openapi":"3.1.0","servers":[{"url":"https://x.example"}],"paths":{"/a":{"post":{"operationId":"x","requestBody":{"content":{"application/json":{"schema":{"not":{"pattern":"(?=x)"}}}}}}}}}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink(filepath.Join(dir, "outside.yaml"), filepath.Join(dir, "agent", "link.yaml")))
	for name, c := range map[string]struct{ keys, want string }{
		"a URL beside it":           {`openapi: pets.yaml, operation: getPet, url: "https://x.example"`, "tools[0].url: got a value, want none"},
		"a schema beside it":        {`openapi: pets.yaml, operation: getPet, schema: {type: object}`, "tools[0].schema: got a value, want none"},
		"no such operation":         {`openapi: pets.yaml, operation: buyPet`, "tools[0].operation: the document has no such operationId; it has: addPets, elsewhere, getPet"},
		"no such file":              {`openapi: none.yaml, operation: getPet`, "tools[0].openapi: the file cannot be opened"},
		"a file outside":            {`openapi: ../outside.yaml, operation: getPet`, "tools[0].openapi: want the path of a file in the agent's folder"},
		"a file outside, by a link": {`openapi: link.yaml, operation: getPet`, "tools[0].openapi: the file cannot be opened"},
		"an absolute path":          {`openapi: /etc/passwd, operation: getPet`, "tools[0].openapi: want the path of a file"},
		"a URL as file":             {`openapi: "https://x.example/o.json", operation: getPet`, "tools[0].openapi: the file cannot be opened"},
		"version 2":                 {`openapi: old.json, operation: x`, "tools[0].openapi: want a document of OpenAPI 3"},
		"half a document":           {`openapi: bad.json, operation: x`, "tools[0].openapi: the file is no JSON object"},
		"no YAML":                   {`openapi: bad.yaml, operation: x`, "tools[0].openapi: bad.yaml:2: not YAML"},
		"anchors":                   {`openapi: anchor.yaml, operation: x`, "got an anchor or alias"},
		"an operation twice":        {`openapi: twice.json, operation: x`, "tools[0].operation: the document has several"},
		"too deep":                  {`openapi: deep.json, operation: x`, "tools[0].operation: its schemas are too large, or too deep"},
		"several servers":           {`openapi: pets.yaml, operation: elsewhere`, "tools[0].server: the document has 2 servers, want the URL of one here"},
		"no server":                 {`openapi: none.json, operation: x`, "tools[0].server: the document has 0 servers"},
		"a relative server":         {`openapi: rel.json, operation: x`, "tools[0].server: the document's server is no http or https URL"},
		"a server that is none":     {`openapi: none.json, operation: x, server: "https://2130706433"`, "tools[0].openapi: got host"},
		"a server with a secret":    {`openapi: leak.json, operation: x`, "tools[0].server: the document names a secret"},
		"a path with a secret":      {`openapi: leak.json, operation: x, server: "https://x.example"`, "tools[0].operation: the document names a secret"},
		"a path without a slash":    {`openapi: leak.json, operation: y, server: "https://x.example"`, "tools[0].operation: its path does not begin with /"},
		"a type with a secret":      {`openapi: leak.json, operation: z, server: "https://x.example"`, "tools[0].operation: the document names a secret"},
		"a remote reference":        {`openapi: pets.yaml, operation: remote, server: "https://x.example"`, `tools[0].operation: got a reference to "https://evil.example/schema.json"`},
		"a reference to nothing":    {`openapi: pets.yaml, operation: nowhere`, "leads to nothing"},
		"a reference to itself":     {`openapi: pets.yaml, operation: looping`, "too deep"},
		"a pattern to be avoided":   {`openapi: never.json, operation: x`, "tools[0].operation: compile schema: not a valid JSON Schema: at /properties/body/not/pattern: is not a valid regex"},
		"a text for true":           {`openapi: kind.json, operation: x`, `tools[0].operation: json key "Parameters.Required": want true or false`},
		"a body that is no JSON":    {`openapi: pets.yaml, operation: uploadPets`, "tools[0].operation: its body is no JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := httpFile(filepath.Join(dir, "agent"), "  - {name: x, kind: http, "+c.keys+"}\n")
			require.ErrorContains(t, err, "agent.yaml:5: ")
			require.NotContains(t, err.Error(), "want http:// or https://, as it is", "what follows from it")
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "canary")
		})
	}
}
