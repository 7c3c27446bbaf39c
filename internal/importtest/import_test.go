package importtest

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/countersign/countersign"

// floors are the packages of the module from the ground up. A package may import those of lower floors, and of its own floor those
// it names. A package without a rule fails the test.
var floors = [][]rule{
	{
		{dir: "statemachine"}, {dir: "pkg/agent"}, {dir: "pkg/agent/clock"}, {dir: "pkg/agent/egress"}, {dir: "internal/match"}, {dir: "internal/hostile"}, {dir: "pkg/agent/mask"},
	},
	{
		{dir: "pkg/agent/edge"}, {dir: "pkg/agent/ids"}, {dir: "pkg/agent/awshttp"}, {dir: "pkg/agent/keyring"}, {dir: "pkg/agent/callback", beside: []string{"pkg/agent/keyring"}}, {dir: "pkg/agent/safelog"}, {dir: "pkg/agent/emf"},
		{dir: "pkg/agent/store"}, {dir: "pkg/agent/catalog"}, {dir: "pkg/agent/stream"},
		{dir: "pkg/agent/hook", beside: []string{"pkg/agent/tool/port"}},
		{dir: "pkg/agent/tool/port"}, {dir: "pkg/agent/tool/schema"},
		{dir: "pkg/agent/tool", beside: []string{"pkg/agent/tool/port", "pkg/agent/tool/schema"}},
		{dir: "pkg/agent/agentfile", beside: []string{"pkg/agent/tool/schema", "pkg/agent/hook"}},
	},
	{
		{dir: "pkg/agent/store/memory"}, {dir: "internal/badinput", beside: []string{"pkg/agent/store/memory"}}, {dir: "internal/damage"}, {dir: "pkg/agent/store/folder"}, {dir: "pkg/agent/store/counting"}, {dir: "pkg/agent/store/storetest"},
		{dir: "pkg/agent/approval"}, {dir: "pkg/agent/person"}, {dir: "pkg/agent/audit", beside: []string{"pkg/agent/approval"}}, {dir: "pkg/agent/show", beside: []string{"pkg/agent/approval"}},
		{dir: "pkg/agent/link", beside: []string{"pkg/agent/approval"}}, {dir: "pkg/agent/notify", beside: []string{"pkg/agent/approval", "pkg/agent/person", "pkg/agent/show", "pkg/agent/link", "pkg/agent/audit"}},
		{dir: "pkg/agent/tool/files"}, {dir: "pkg/agent/tool/ocr", beside: []string{"pkg/agent/tool/files"}},
		{dir: "pkg/agent/modelretry"}, {dir: "pkg/agent/otlp"}, {dir: "pkg/agent/emf"}, {dir: "internal/asl"},
	},
	{{dir: "pkg/agent/runtime"}, {dir: "pkg/agent/letter"}, {dir: "pkg/agent/tool/builtin"}, {dir: "pkg/agent/registry"}},
	{ // adapters: never each other
		{dir: "pkg/agent/bolt"}, {dir: "pkg/agent/openai"}, {dir: "pkg/agent/script"}, {dir: "pkg/agent/standin"},
		{dir: "pkg/agent/dynamo"}, {dir: "pkg/agent/s3"}, {dir: "pkg/agent/sfn"}, {dir: "pkg/agent/eventbridge"}, {dir: "pkg/agent/lambdatool"}, {dir: "pkg/agent/kms"}, {dir: "pkg/agent/secrets"}, {dir: "pkg/agent/httptool"}, {dir: "pkg/agent/bedrock"},
		{dir: "internal/dynamolocal"}, {dir: "internal/mcppeer"}, {dir: "internal/browsertest"}, {dir: "internal/bedrockfake"}, {dir: "internal/lambdart"}, {dir: "internal/sfnwire"}, {dir: "internal/awsfake"}, {dir: "internal/slackfake"},
		{dir: "pkg/agent/slack"}, {dir: "pkg/agent/ses"}, {dir: "pkg/agent/outbox"},
		{dir: "pkg/agent/api"}, {dir: "pkg/agent/tracing"}, {dir: "pkg/agent/metrics"}, {dir: "pkg/agent/mcp"}, {dir: "pkg/agent/mcp/program"},
	},
	{{dir: "pkg/agent/gateway"}, {dir: "pkg/agent/web"}},
	{{dir: "pkg/agent/lambdafn"}, {dir: "pkg/agent/deployed"}, {dir: "pkg/agent/reach"}},
	{{dir: "pkg/agent/front"}},
	{
		{dir: "internal/fault"}, {dir: "internal/local"}, {dir: "internal/scenario", beside: []string{"internal/local", "internal/fault"}}, {dir: "internal/rehearse", beside: []string{"internal/local"}},
		{dir: "agents", beside: []string{"agents/refunds", "agents/incident", "agents/research", "agents/ledger", "agents/hooks"}},
		{dir: "agents/research"}, {dir: "agents/refunds", beside: []string{"agents/ledger"}},
		{dir: "agents/incident", beside: []string{"agents/ledger", "agents/incident/duty"}}, {dir: "agents/incident/duty"}, {dir: "agents/ledger"},
		{dir: "agents/hooks", beside: []string{"agents/incident/duty"}}, {dir: "agents/compiled"},
	},
	{{dir: "pkg/agent/cli"}, {dir: "internal/bench"}, {dir: "internal/costs"}, {dir: "internal/samtest"}, {dir: "internal/long"}, {dir: "internal/sweep"}},
	{
		{dir: "cmd/countersign"}, {dir: "agents/compile"},
		{dir: "functions/step"}, {dir: "functions/tool"}, {dir: "functions/approve"}, {dir: "functions/api"}, {dir: "functions/sweep"}, {dir: "functions/web"},
		{dir: "internal/sweep/run"}, {dir: "internal/importtest"}, {dir: "internal/linear"}, {dir: "internal/e2e"},
		{dir: "internal/sampletest"},
	},
}

type rule struct {
	dir    string
	beside []string
}

// nothing a Lambda links may bring these along.
var notInLambda = []string{
	"go.etcd.io/bbolt", module + "/pkg/agent/bolt", module + "/internal/local", module + "/internal/asl", module + "/pkg/agent/cli",
	"github.com/alecthomas/kong", module + "/pkg/agent/script",
	// They look up methods by names they compute, which keeps every exported method of every type: twice the size (ADR 0015).
	"text/template", "html/template", "net/rpc",
	// Where a function's credentials come from is known; package lambdafn reads them.
	"github.com/aws/aws-sdk-go-v2/config", "github.com/aws/aws-sdk-go-v2/feature/ec2/imds", "github.com/aws/aws-sdk-go-v2/service/sts",
	// Package pkg/agent/s3 has a client of its own, and reads what S3 answers itself; so have pkg/agent/sfn and pkg/agent/dynamo.
	"github.com/aws/aws-sdk-go-v2/service/s3", "encoding/xml", "github.com/aws/aws-sdk-go-v2/service/sfn", "github.com/aws/aws-sdk-go-v2/service/dynamodb",
	// Package pkg/agent/tracing records spans itself.
	"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/sdk/trace", "go.opentelemetry.io/otel/sdk/resource",
	"expvar", "net/http/pprof", "testing", "github.com/anishathalye/porcupine",
	// It starts programs on the machine, which no agent's file may in a deployed function.
	module + "/pkg/agent/mcp/program",
}

// notWithoutTools is what only functions/tool, which runs tools, may link. A package of agents leads there, and so does package reach.
// The last three check values: functions/api and functions/web do it with arguments that people edit, functions/step with outputs.
var notWithoutTools = []string{
	module + "/pkg/agent/egress", module + "/pkg/agent/httptool", module + "/pkg/agent/secrets", module + "/pkg/agent/reach",
	module + "/agents", module + "/pkg/agent/registry", module + "/pkg/agent/agentfile", "github.com/goccy/go-yaml",
	module + "/pkg/agent/tool", "github.com/invopop/jsonschema", module + "/pkg/agent/mcp", "github.com/modelcontextprotocol/go-sdk/mcp",
	module + "/pkg/agent/tool/schema", "github.com/santhosh-tekuri/jsonschema/v6", "golang.org/x/text/message",
}

// linkedBy are exceptions to the above.
var linkedBy = map[string][]string{
	"tool": notWithoutTools,
	"api":  notWithoutTools[12:],
	"step": notWithoutTools[12:],
	"web":  notWithoutTools[12:],
}

// lambdaTags are the build tags of the Makefile's LAMBDA.
const lambdaTags = "lambda.norpc"

// notWithoutModels is what only functions/step, which asks models, may link.
var notWithoutModels = []string{
	module + "/pkg/agent/bedrock", module + "/pkg/agent/openai", "github.com/aws/aws-sdk-go-v2/service/bedrockruntime",
}

type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Deps       []string
	Standard   bool
}

func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-tags", lambdaTags, "-json=ImportPath,Dir,GoFiles,Imports,Deps,Standard", module+"/...").Output()
	require.NoError(t, err)
	var all []pkg
	d := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		err := d.Decode(&p)
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		all = append(all, p)
	}
}

func TestImportsPointDown(t *testing.T) {
	floorOf, rules := map[string]int{}, map[string]rule{}
	for i, floor := range floors {
		for _, r := range floor {
			floorOf[r.dir], rules[r.dir] = i, r
		}
	}
	seen := map[string]bool{}
	for _, p := range list(t) {
		dir := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		floor, ok := floorOf[dir]
		require.True(t, ok, "package %q has no floor: say in floors where it stands", dir)
		seen[dir] = true
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module+"/")
			if !ours {
				continue
			}
			down := floorOf[to] < floor || slices.Contains(rules[dir].beside, to)
			require.True(t, down, "%s imports %s, which does not stand below it", dir, to)
		}
	}
	for dir := range floorOf {
		require.True(t, seen[dir], "floors names %q, which is not there", dir)
	}
}

func TestCoreImportsNothingOfOursAndNoSDK(t *testing.T) {
	for _, p := range list(t) {
		if p.ImportPath != module+"/pkg/agent" {
			continue
		}
		for _, imp := range p.Deps {
			require.False(t, strings.Contains(strings.Split(imp, "/")[0], "."), "the core depends on %s", imp)
		}
		for _, imp := range p.Imports {
			require.NotContains(t, []string{"os", "net", "net/http", "io/fs", "syscall", "math/rand", "math/rand/v2", "crypto/rand"}, imp)
		}
	}
}

func TestLambdaBinariesStayLight(t *testing.T) {
	for _, p := range list(t) {
		if !strings.HasPrefix(p.ImportPath, module+"/functions/") {
			continue
		}
		banned := notInLambda
		if p.ImportPath != module+"/functions/step" {
			banned = append(slices.Clone(banned), notWithoutModels...)
		}
		for _, b := range notWithoutTools {
			if !slices.Contains(linkedBy[path.Base(p.ImportPath)], b) {
				banned = append(slices.Clone(banned), b)
			}
		}
		for _, b := range banned {
			require.NotContains(t, p.Deps, b, "%s links %s", p.ImportPath, b)
		}
	}
}

// timeAndChance are the functions that only package clock may call, and the packages that only package ids may import.
var (
	clockOnly = []string{"Now", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Since", "Until"}
	idsOnly   = []string{"math/rand", "math/rand/v2", "crypto/rand"}
)

func TestOnlyClockReadsTimeAndOnlyIDsDrawsChance(t *testing.T) {
	for _, p := range list(t) {
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, 0)
			require.NoError(t, err)
			if p.ImportPath != module+"/pkg/agent/clock" {
				checkTime(t, p.ImportPath+"/"+f, file)
			}
			if p.ImportPath == module+"/pkg/agent/ids" {
				continue
			}
			for _, imp := range file.Imports {
				require.NotContains(t, idsOnly, strings.Trim(imp.Path.Value, `"`), "%s/%s", p.ImportPath, f)
			}
		}
	}
}

func checkTime(t *testing.T, name string, file *ast.File) {
	t.Helper()
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clockOnly, sel.Sel.Name) {
			t.Errorf("%s calls time.%s: only package clock may", name, sel.Sel.Name)
		}
		return true
	})
}
