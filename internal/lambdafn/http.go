package lambdafn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/dynamo"
	"github.com/countersign/countersign/internal/store/s3"
	"github.com/countersign/countersign/internal/web"
)

// The environment of functions/http beside that of every function. All of it is optional.
const (
	EnvOIDCIssuer  = "COUNTERSIGN_OIDC_ISSUER"        // of the people who sign in to the console
	envOIDCClient  = "COUNTERSIGN_OIDC_CLIENT_ID"     // empty = nobody can sign in
	EnvOIDCSecret  = "COUNTERSIGN_OIDC_CLIENT_SECRET" // names the client's secret; empty = a public client
	envTenantClaim = "COUNTERSIGN_TENANT_CLAIM"       // tenant
	envUserClaim   = "COUNTERSIGN_USER_CLAIM"         // sub
	envGroupsClaim = "COUNTERSIGN_GROUPS_CLAIM"       // groups
	EnvIAMTenant   = "COUNTERSIGN_IAM_TENANT"         // empty = callers signed by IAM are refused
	// on = the trust policies of all roles that may call pin the names of sessions; off or empty = they do not
	envIAMPinned = "COUNTERSIGN_IAM_PINNED"
	// the name of the stack's own role of operators, which pins them; empty = there is none
	EnvOperators = "COUNTERSIGN_OPERATORS_ROLE"
)

// HTTP is the main of functions/http: the HTTP API, its pages, and Slack's clicks. It serves until the process ends.
func HTTP(r *registry.Registry) {
	listen(func(cfg aws.Config, getenv func(string) string) (func(context.Context, []byte) (any, error), error) {
		return startHTTP(r, cfg, getenv)
	})
}

// envPeopleAdmins is the group whose members may see and change people by the API; empty = nobody may.
const envPeopleAdmins = "COUNTERSIGN_PEOPLE_ADMINS"

func startHTTP(
	r *registry.Registry, cfg aws.Config, getenv func(string) string,
) (func(ctx context.Context, payload []byte) (any, error), error) {
	who := Identity{
		TenantClaim: getenv(envTenantClaim), UserClaim: getenv(envUserClaim),
		GroupsClaim: getenv(envGroupsClaim), IAMTenant: getenv(EnvIAMTenant), Operators: getenv(EnvOperators),
	}
	var err error
	if who.IAMPinned, err = isOn(getenv, envIAMPinned); err != nil {
		return nil, err
	}
	if who.IAMTenant != "" && !agent.ValidTenant(who.IAMTenant) {
		return nil, fmt.Errorf("%s: got %q, want a tenant: ^[a-z0-9][a-z0-9-]{0,39}$", EnvIAMTenant, who.IAMTenant)
	}
	if parts := strings.Split(getenv(envMachine), ":"); len(parts) > 4 { // start says so where it is no ARN
		who.IAMAccount = parts[4]
	}
	f, err := start(r, cfg, getenv, addNotifier)
	if err != nil {
		return nil, err
	}
	if f.PeopleAdmins = getenv(envPeopleAdmins); f.PeopleAdmins != "" && !run.IsPrincipal("group:", f.PeopleAdmins) {
		return nil, fmt.Errorf("%s: got %q, want group:NAME", envPeopleAdmins, f.PeopleAdmins)
	}
	f.People, f.Ring = f.directory(), f.keyRing(EnvKeyRing)
	linkRing := f.keyRing(EnvLinkKeyRing)
	f.Links = links(f.Ports, linkRing, getenv)
	f.SignIn, err = signIn(f, linkRing, who)
	f.watch.disablePart("sign-in", err)
	if signing := f.secret(EnvSlackSecret); signing != nil {
		f.Slack = func(ctx context.Context) (*people.SlackInteractions, error) {
			text, err := signing(ctx)
			if err != nil {
				return nil, err
			}
			app, err := SlackApp(getenv, text)
			if err != nil {
				err = fmt.Errorf("%s: %w", EnvSlackSecret, err)
			}
			f.watch.disablePart("clicks in Slack", err)
			return app, err
		}
	}
	if f.Live, err = f.liveTable(); err != nil {
		return nil, err
	}
	serve, stream := f.Serve(f.agents, who), f.Stream(f.agents, who, f.watch.flush)
	return func(ctx context.Context, payload []byte) (any, error) {
		if isStream(payload) {
			return stream(ctx, payload)
		}
		defer f.watch.flush(ctx)
		return serve(ctx, payload)
	}, nil
}

// liveTable returns where replies are stored while models write them; nil = nowhere.
func (f *function) liveTable() (store.Table, error) {
	on, err := isOn(f.getenv, envStreaming)
	if !on {
		return nil, err
	}
	return f.Ports.Table, nil
}

// signIn signs people in who come with a browser. Their claims make callers as those of a token do. Nil = the
// environment has no client of a provider.
func signIn(f *function, ring func() (*secrets.Ring, error), who Identity) (*web.OIDC, error) {
	client := f.getenv(envOIDCClient)
	if client == "" {
		return nil, nil
	}
	if err := checkEnv(f.cfg, f.getenv, EnvOIDCIssuer, EnvLinkKeyRing, envWebURL); err != nil {
		return nil, err
	}
	c := f.Ports.Clock
	return &web.OIDC{
		Issuer: f.getenv(EnvOIDCIssuer), ClientID: client, Secret: f.secret(EnvOIDCSecret), Base: f.getenv(envWebURL),
		Ring: ring, Identify: who.TokenCaller, Admit: f.Admit, IDs: clock.NewIDs(c), Clock: c, Log: f.Deployment.Log,
		Client: &http.Client{Timeout: 10 * time.Second},
	}, nil
}

// Serve answers the events of a gateway by the HTTP API, and by the pages and Slack's clicks if there are Links. It
// takes services' answers from an event rule. With SignIn it serves the console as well. It uses no model and no tool,
// and needs neither among its ports. A stream learns of what other functions write by looking at the journal's tail.
//
// Who calls the API is asked of every request but a callback's, whatever route of the gateway it came by; a session is
// no answer: the console has addresses of its own for what its pages read of the API. The pages never ask: a link says
// who opens it, and Slack signs what it sends.
func (d *Deployment) Serve(agents web.Agents, who Identity) Invoke {
	backend := d.deployedBackend(agents, who)
	served := d.Trace.HTTP(web.APIHandler(backend))
	if d.Links != nil {
		served = d.withPages(served, backend)
	}
	serve := Gateway(served, d.Log)
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		ctx, done := d.Ports.Clock.WithTimeout(ctx, gatewayTime)
		defer done()
		ctx, cancel := withAnswerTime(ctx, d.Ports.Clock)
		defer cancel()
		if sent, ok := readDelivery(payload); ok {
			return acceptAnswer(ctx, d.Inputs, sent)
		}
		return serve(ctx, payload)
	}
}

// withPages serves the pages beside the API, and the console to people who have signed in. Each reads by the API as the
// caller that they are.
func (d *Deployment) withPages(served http.Handler, b web.Backend) http.Handler {
	cache, feed := web.NewCache(), web.NewPoll(d.Ports.Journal, d.Live, d.Ports.Clock)
	feed.Buffered = true // the gateway does, and the pages begin a reply anew with each response
	console := d.SignIn.Protect(func(s web.Session) http.Handler {
		own := b
		own.Feed, own.Caller = feed, func(*http.Request) (web.Caller, error) { return s.Caller, nil }
		served := web.APIHandler(own)
		c := d.Console(s.Caller, web.NewHandlerClient(served))
		c.Agents, c.Definition, c.Key, c.Session = b.Agents.Agents, b.Agents.Agent, s.Key, true
		c.API, c.Cache = served, cache
		return c.Handler()
	})
	pages := d.PagesHandler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch p := r.URL.Path; {
		case p == people.SlackPath || strings.HasPrefix(p, approval.LinkPath) || p == "/" && d.SignIn == nil:
			pages.ServeHTTP(w, r)
		case d.SignIn == nil || strings.HasPrefix(p, web.APIPath):
			served.ServeHTTP(w, r)
		case slices.Contains(web.SignInPaths(), p):
			d.SignIn.ServeHTTP(w, r)
		default:
			console.ServeHTTP(w, r)
		}
	})
}

// Console returns the console for one person, who reads and acts through a client of the API. The caller adds the
// agents, and what proves decisions.
func (d *Deployment) Console(who web.Caller, client *web.Client) *web.Console {
	j := d.Ports.Journal
	return &web.Console{
		Pages: d.Pages(), Tenant: who.Tenant, As: who.Principal, Read: client, Act: client, IDs: d.Ports.IDs,
		Conversation: func(ctx context.Context, run string) ([]policy.SeenMessage, error) {
			l, err := j.Load(ctx, who.Tenant, run)
			if err != nil {
				return nil, err
			}
			return j.Conversation(ctx, who.Tenant, &l.State)
		},
		Blob: func(ctx context.Context, digest string) ([]byte, error) {
			if size, err := d.Ports.Blobs.Size(ctx, who.Tenant, digest); err != nil || size > web.MaxPicture {
				return nil, cmp.Or(err, store.ErrNoBlob)
			}
			return d.Ports.Blobs.Get(ctx, who.Tenant, digest)
		},
		Arguments: func(ctx context.Context, run, tool string, raw []byte) ([]people.Row, error) {
			var schema json.RawMessage // in the definition that the run is pinned to; nil = the tool is unknown
			if tool != "" {
				l, err := j.Load(ctx, who.Tenant, run)
				if err != nil {
					return nil, err
				}
				def, err := d.Shown(ctx, who.Tenant, l.State.Definition)
				if err != nil {
					return nil, err
				}
				t, _ := def.ToolByModelName(tool) // as messages name it
				schema = t.Schema
			}
			lines, _ := people.ReadArguments(raw, schema)
			return lines, nil
		},
	}
}

// PagesHandler serves the pages of requests, and what is clicked in Slack. Every other path is answered like a link
// that is none.
func (d *Deployment) PagesHandler() http.Handler {
	pages := d.Pages().Handler()
	if d.Slack == nil {
		return pages
	}
	log := cmp.Or(d.Log, slog.New(slog.DiscardHandler))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != people.SlackPath {
			pages.ServeHTTP(w, r)
			return
		}
		app, err := d.Slack(r.Context())
		if err != nil {
			log.Error("could not take a click in Slack", "error", err)
			http.Error(w, "clicks cannot be taken now", http.StatusServiceUnavailable)
			return
		}
		clicks := *app
		clicks.Directory, clicks.Decide, clicks.UpdateMessages = d.People, d.Desk.Decide, d.Desk.OnChange
		clicks.Clock, clicks.Log = d.Ports.Clock, log
		clicks.ServeHTTP(w, r)
	})
}

// Pages returns the pages of requests over the desk.
func (d *Deployment) Pages() *web.Pages {
	pages := &web.Pages{
		Desk: d.Desk, People: d.People, View: (&people.Viewer{Runs: d.Ports.Journal, Definitions: d.Shown}).View,
		Clock: d.Ports.Clock, Log: d.Log, SignIn: d.SignIn,
		Get: d.Desk.Get,
		// What somebody says of a request is an answer of those for whom its run acts, and a question of others.
		Remark: func(ctx context.Context, r web.Remark) error {
			a, err := approval.Get(ctx, d.Ports.Table, r.Tenant, r.ID)
			if err != nil {
				return err
			}
			_, err = d.Desk.AddRemark(ctx, approval.RemarkInput{Tenant: r.Tenant, ID: r.ID, Text: r.Text,
				Reply: slices.Contains(a.Requesters, r.By.ID), By: r.By, Via: r.Via})
			return err
		},
	}
	pages.Codes, _ = d.Ports.Notify.(web.Codes)
	if d.Links != nil { // a nil one is no nil interface
		pages.Links = d.Links
	}
	return pages
}

// gatewayTime is how long a gateway waits for an answer at most, less a second: a function whose URL streams has more.
const gatewayTime = 29 * time.Second

// withAnswerTime leaves a second of a function's time to answer in, if ctx has a deadline: who is cut off by it leaves
// the client without a problem to read, and whoever runs this without a line in the log.
func withAnswerTime(ctx context.Context, c clock.Clock) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return c.WithTimeout(ctx, deadline.Sub(c.Now())-time.Second)
}

// Authorizer is what the gateway has verified about a caller.
type Authorizer = events.APIGatewayV2HTTPRequestContextAuthorizerDescription

// Identity says which verified facts make a caller. The zero value takes the claims tenant, sub and groups, and refuses
// IAM.
//
// From a JWT: the tenant's claim is a tenant's name; the user's claim makes user:<claim>; every group in the groups'
// claim makes group:<group>. The groups' claim is text, as the gateway passes claims on, in one of these forms:
//
//	["a","b"]   JSON: each element is a group
//	[a b]       what API Gateway makes of an array, Cognito's cognito:groups for one; commas separate, too
//	a b  a,b    a plain text, as a scope is, or a list that an Auth0 action has joined
//
// In the last two a space ends a name: give groups names without spaces, and let nobody make groups whose name holds
// another's. A group that cannot be a principal is left out. A user or a tenant that cannot be one is refused, as are
// Auth0's subjects with their bar: name another claim for the user there, such as email, which is refused where
// email_verified is false.
//
// From IAM: the tenant is IAMTenant. An IAM user makes user:<name>. A session of an assumed role makes
// user:<session>@<role> and group:<role>. Whoever may assume a role may choose the session's name, so a role stands
// beside it: nobody becomes a user of a JWT or of another role by it. Names are one account's: with IAMAccount, those
// of any other are refused, or whoever owns one that a resource policy lets in could make a role of an approvers' name
// there. A session is Unpinned: whoever may assume a role twice is two of them. Pinned are users, sessions of the role
// Operators, which are operators, and with IAMPinned all.
type Identity struct {
	TenantClaim string // "" = tenant
	UserClaim   string // "" = sub
	GroupsClaim string // "" = groups
	IAMTenant   string // "" = callers signed by IAM are refused
	IAMAccount  string // the account whose users and roles are meant; "" = any that the gateway lets in
	IAMPinned   bool   // every role's trust policy pins sts:RoleSessionName
	Operators   string // name of a role that pins it, and whose sessions are user:<session>@operators; "" = none
}

type callerKey struct{}

// Caller returns who makes a request that Gateway has passed on, as web.Backend.Caller. Errors are *web.Problem:
// Unauthenticated if no identity was verified, NotAllowed if the verified one is no caller. They name claims and never
// quote them.
func (i Identity) Caller(r *http.Request) (web.Caller, error) {
	a, _ := r.Context().Value(callerKey{}).(*Authorizer)
	switch {
	case a == nil:
	case a.JWT != nil:
		return i.TokenCaller(a.JWT.Claims)
	case a.IAM != nil:
		return i.iamCaller(a.IAM.UserARN)
	}
	return web.Caller{}, web.NewProblem(web.Unauthenticated, "want a verified token or an IAM signature")
}

// TokenCaller returns whom the claims of a verified token make. Its errors are like those of Caller.
func (i Identity) TokenCaller(claims map[string]string) (web.Caller, error) {
	tenantClaim, userClaim, groupsClaim := cmp.Or(i.TenantClaim, "tenant"), cmp.Or(i.UserClaim, "sub"),
		cmp.Or(i.GroupsClaim, "groups")
	tenant := claims[tenantClaim]
	if !agent.ValidTenant(tenant) {
		return notAllowed("the token's claim " + tenantClaim + " names no tenant: want ^[a-z0-9][a-z0-9-]{0,39}$")
	}
	if userClaim == "email" && claims["email_verified"] == "false" {
		return notAllowed("the token's claim email was not verified by its issuer")
	}
	user := "user:" + claims[userClaim]
	if !agent.ValidPrincipal(user) {
		return notAllowed("the token's claim " + userClaim + " names no user: want 1 to 128 of A-Z a-z 0-9 . _ @ + -")
	}
	return web.Caller{Tenant: tenant, Principal: policy.Principal{ID: user, Groups: readGroups(claims[groupsClaim])}}, nil
}

func notAllowed(why string) (web.Caller, error) {
	return web.Caller{}, web.NewProblem(web.NotAllowed, why)
}

// readGroups reads a claim in any of the forms that Identity lists.
func readGroups(claim string) []string {
	var names []string
	if json.Unmarshal([]byte(claim), &names) != nil {
		if inner, ok := strings.CutPrefix(claim, "["); ok && strings.HasSuffix(inner, "]") {
			claim = strings.TrimSuffix(inner, "]")
		}
		names = strings.FieldsFunc(claim, func(r rune) bool { return r == ' ' || r == ',' })
	}
	var out []string
	for _, name := range names {
		if g := "group:" + name; agent.ValidPrincipal(g) {
			out = append(out, g)
		}
	}
	return out
}

func (i Identity) iamCaller(arn string) (web.Caller, error) {
	if i.IAMTenant == "" {
		return notAllowed("callers that IAM has signed are not taken here")
	}
	p, account, ok := i.principalOf(arn)
	if i.IAMAccount != "" && account != i.IAMAccount {
		return notAllowed("want a user or a role of the deployment's own account")
	}
	if !agent.ValidTenant(i.IAMTenant) || !ok {
		return notAllowed("want an IAM user or a session of an assumed role whose names can be those of a principal")
	}
	return web.Caller{Tenant: i.IAMTenant, Principal: p}, nil
}

// principalOf reads arn:aws:iam::ACCOUNT:user/PATH/NAME and arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION. A role with
// @ or a dot is none: user:a@b.c would not say whether it is a session of b.c or somebody's address.
func (i Identity) principalOf(arn string) (p policy.Principal, account string, ok bool) {
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" {
		return policy.Principal{}, "", false
	}
	what := strings.Split(parts[5], "/")
	switch {
	case parts[2] == "iam" && len(what) > 1 && what[0] == "user":
		p = policy.Principal{ID: "user:" + what[len(what)-1]}
		return p, parts[4], agent.ValidPrincipal(p.ID)
	case parts[2] == "sts" && len(what) == 3 && what[0] == "assumed-role" && !strings.ContainsAny(what[1], "@."):
		role, own := what[1], i.Operators != "" && what[1] == i.Operators
		if own {
			role = "operators"
		} else if i.Operators != "" && role == "operators" {
			return p, parts[4], false // another role of the name
		}
		p = policy.Principal{
			ID: "user:" + what[2] + "@" + role, Groups: []string{"group:" + role}, Unpinned: !own && !i.IAMPinned,
		}
		return p, parts[4], what[2] != "" && agent.ValidPrincipal(p.ID) && agent.ValidPrincipal(p.Groups[0])
	default:
		return policy.Principal{}, "", false
	}
}

// The environment of a deployed function, beside that of the SDK.
const (
	EnvTable   = "COUNTERSIGN_TABLE"
	envBucket  = "COUNTERSIGN_BUCKET"
	envMachine = "COUNTERSIGN_STATE_MACHINE"
	envBus     = "COUNTERSIGN_BUS" // name of the event bus for what services are asked and for runs' ends; empty = none
)

// Stored returns the table and the blobs of a deployment that the environment names, COUNTERSIGN_TABLE and
// COUNTERSIGN_BUCKET, for programs outside of it. The error names a missing variable.
func Stored(cfg aws.Config, getenv func(string) string) (store.Table, store.Blobs, error) {
	if err := checkEnv(cfg, getenv, EnvTable, envBucket); err != nil {
		return nil, nil, err
	}
	table, err := StoredTable(cfg, getenv)
	return table, s3.New(cfg, getenv(envBucket)), err
}

// StoredTable returns a deployment's table.
func StoredTable(cfg aws.Config, getenv func(string) string) (store.Table, error) {
	if err := checkEnv(cfg, getenv, EnvTable); err != nil {
		return nil, err
	}
	clk := clock.System()
	draw := clock.NewIDs(clk)
	return store.Resend(dynamo.New(cfg, getenv(EnvTable), draw.Key), clk, draw.Jitter), nil
}

// checkEnv returns an error that names the first variable without a value. The region may come from a profile instead
// of AWS_REGION.
func checkEnv(cfg aws.Config, getenv func(string) string, names ...string) error {
	for _, name := range names {
		if getenv(name) == "" {
			return fmt.Errorf("%s: want a value, got none", name)
		}
	}
	if cfg.Region == "" {
		return errors.New("AWS_REGION: want a value, got none")
	}
	return nil
}

// delivery is a service's answer as the event rule hands it on: the tenant is the rule's constant, the answer the
// event's detail.
type delivery struct {
	Tenant string          `json:"tenant"`
	Answer json.RawMessage `json:"answer"`

	raw []byte // all of it
}

// eventAnswer is the detail of an answer. Exactly one of Result and Error is given; a null result is one.
type eventAnswer struct {
	Run    string          `json:"run"`
	Call   string          `json:"call"`
	Result json.RawMessage `json:"result"` // a string stands for its text, anything else for its JSON
	Error  *string         `json:"error"`
}

// readDelivery distinguishes an answer from an event of the gateway. An event of the gateway never has these keys: what
// a caller sends is in its body.
func readDelivery(payload []byte) (delivery, bool) {
	d := delivery{raw: payload}
	err := json.Unmarshal(payload, &d)
	return d, err == nil && d.Tenant != "" && d.Answer != nil
}

// acceptAnswer puts an answer into the inbox of its run. One that counts for nothing is no error. One of the wrong
// form, or for a run that does not exist, is an error and ends in the dead-letter queue.
func acceptAnswer(ctx context.Context, inputs *runtime.Inputs, d delivery) ([]byte, error) {
	got, err := readAnswer(d)
	if err != nil {
		return nil, err
	}
	err = inputs.Answer(ctx, got)
	if err != nil && !errors.Is(err, runtime.ErrNotAwaited) {
		return nil, classify(err)
	}
	return json.Marshal(map[string]bool{"applied": err == nil})
}

func readAnswer(d delivery) (runtime.Answer, error) {
	var said eventAnswer
	// no key of it is there twice, or in other letters
	if err := jsonx.DecodeKnown(d.raw, limits, &delivery{}); err != nil {
		return runtime.Answer{}, invalidf("read the answer: %w", err)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(d.Answer), []byte("{")) {
		return runtime.Answer{}, invalidf("read the answer: want {run, call, result or error}, got something of another form")
	}
	if err := jsonx.DecodeKnown(d.Answer, limits, &said); err != nil { // an event may say more than the answer
		return runtime.Answer{}, invalidf("read the answer: %w", err)
	}
	switch {
	case !agent.ValidTenant(d.Tenant):
		return runtime.Answer{}, invalidf("read the answer: tenant: want ^[a-z0-9][a-z0-9-]{0,39}$")
	case said.Run == "" || said.Call == "":
		return runtime.Answer{}, invalidf("read the answer: want the run and the call that it answers")
	case len(said.Run) > maxKey || len(said.Call) > maxKey || strings.Contains(said.Run+said.Call, "\x00"):
		return runtime.Answer{}, invalidf("read the answer: run and call: want their ids")
	case (said.Result == nil) == (said.Error == nil):
		return runtime.Answer{}, invalidf("read the answer: want exactly one of result and error")
	}
	// Whoever may put an event on the bus answers by it.
	got := runtime.Answer{Tenant: d.Tenant, Run: said.Run, Call: said.Call, By: "service"}
	if said.Error != nil {
		got.Content, got.IsError = *said.Error, true
		return got, nil
	}
	// The model will read a string's text, or the JSON.
	value, err := jsonx.CompactJSON(said.Result, jsonx.JSONLimits{})
	if err != nil {
		return got, invalidf("read the answer: result: %w", err)
	}
	if !bytes.HasPrefix(value, []byte(`"`)) || json.Unmarshal(value, &got.Content) != nil {
		got.Content = string(value)
	}
	return got, nil
}
