package standins

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// EnvChromium names the browser, where it is not found on its own.
const EnvChromium = "COUNTERSIGN_TEST_CHROMIUM"

// EnvShots is the folder where pictures of pages are kept. Empty = no pictures are taken.
const EnvShots = "COUNTERSIGN_TEST_SHOTS"

// Browser is the browser for one test. Safe for concurrent use; it does one thing at a time.
type Browser struct {
	t     *testing.T
	pages []string
}

// driver is the process that drives the browser. All tests of a package share it, and each page has cookies and storage
// of its own. It ends when its input does: after the tests, or with their process.
var driver struct {
	sync.Mutex
	cmd   *exec.Cmd
	stdin io.Closer
	in    *json.Encoder
	out   *bufio.Reader
}

// BrowserTests are the tests of a package that uses a browser: its TestMain runs them in place of testing.M.
type BrowserTests struct{ *testing.M }

// Run runs the tests, then ends the browser.
func (m BrowserTests) Run() int {
	code := m.M.Run()
	if driver.cmd == nil {
		return code
	}
	if err := errors.Join(driver.stdin.Close(), driver.cmd.Wait()); err != nil {
		fmt.Fprintln(os.Stderr, "end the browser:", err)
		return max(code, 1)
	}
	return code
}

// StartBrowser starts a browser, or takes the one that runs. Its pages close when the test ends. Where something that
// it takes is missing the test is skipped, and says what.
func StartBrowser(t *testing.T) *Browser {
	t.Helper()
	b := &Browser{t: t}
	driver.Lock()
	defer driver.Unlock()
	if driver.in == nil {
		cmd := exec.Command(node(t), "drive.mjs", chromium(t))
		cmd.Dir = filepath.Join(fetched(t, "browser", "playwright-core"), "../..")
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		driver.cmd, driver.stdin = cmd, in
		driver.in, driver.out = json.NewEncoder(in), bufio.NewReaderSize(out, 1<<20)
		readAnswer(t, nil)
	}
	t.Cleanup(func() {
		for _, name := range b.pages {
			(&Page{b, name}).do(nil, "close")
		}
	})
	return b
}

func chromium(t *testing.T) string {
	t.Helper()
	if named := os.Getenv(EnvChromium); named != "" {
		return named
	}
	for _, name := range []string{ // without a window's parts first: it takes half the time of the processor
		"chromium-headless-shell", "chrome-headless-shell", "chromium", "chromium-browser", "google-chrome",
		"google-chrome-stable", "chrome",
	} {
		if at, err := exec.LookPath(name); err == nil {
			return at
		}
	}
	cache := os.Getenv("PLAYWRIGHT_BROWSERS_PATH")
	if home, err := os.UserHomeDir(); err == nil && cache == "" {
		cache = filepath.Join(home, ".cache", "ms-playwright")
	}
	found, err := filepath.Glob(filepath.Join(cache, "chromium*", "chrome-linux*", "*chrom*"))
	require.NoError(t, err)
	slices.Sort(found)
	for _, at := range slices.Backward(found) {
		if info, err := os.Stat(at); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return at
		}
	}
	t.Skip("no Chromium in PATH, and none that playwright fetched; name one in " + EnvChromium)
	return ""
}

// readAnswer reads an answer of the driver into out, if it is not nil.
func readAnswer(t *testing.T, out any) {
	t.Helper()
	line, err := driver.out.ReadBytes('\n')
	require.NoError(t, err, "the browser's driver ended")
	var said struct {
		OK    json.RawMessage `json:"ok"`
		Error string          `json:"error"`
	}
	require.NoError(t, json.Unmarshal(line, &said))
	require.Empty(t, said.Error)
	if out != nil {
		require.NoError(t, json.Unmarshal(said.OK, out))
	}
}

// PageOptions are of a page. The zero value is a desktop's, light, with JavaScript.
type PageOptions struct {
	Width, Height int // 0 = 1280 by 800
	NoJavaScript  bool
}

// Page is a page of its own: it shares nothing with others.
type Page struct {
	b    *Browser
	name string
}

// PageLog is what a page did beside what the test had it do.
type PageLog struct {
	Requests []string // METHOD URL, in order
	Dialogs  []string
	Console  []string
}

// Open opens a page under a name.
func (b *Browser) Open(name string, o PageOptions) *Page {
	b.t.Helper()
	p := &Page{b, b.t.Name() + "/" + name}
	b.pages = append(b.pages, p.name)
	p.do(nil, "open", "js", !o.NoJavaScript, "width", cmp.Or(o.Width, 1280), "height", cmp.Or(o.Height, 800))
	return p
}

// do has the driver do something with the page, and reads what it gives into out, if that is not nil.
func (p *Page) do(out any, op string, pairs ...any) {
	p.b.t.Helper()
	command := map[string]any{"op": op, "page": p.name}
	for i := 0; i < len(pairs); i += 2 {
		command[pairs[i].(string)] = pairs[i+1]
	}
	driver.Lock()
	defer driver.Unlock()
	require.NoError(p.b.t, driver.in.Encode(command))
	readAnswer(p.b.t, out)
}

// Close closes the page.
func (p *Page) Close() {
	p.b.t.Helper()
	p.b.pages = slices.DeleteFunc(p.b.pages, func(name string) bool { return name == p.name })
	p.do(nil, "close")
}

// Goto opens an address, and gives the answer's status.
func (p *Page) Goto(url string) (status int) {
	p.b.t.Helper()
	var got struct{ Status int }
	p.do(&got, "goto", "url", url)
	return got.Status
}

// Eval evaluates JavaScript in the page, which works where the page's own does not, and reads what it gives into out,
// if that is not nil.
func (p *Page) Eval(code string, out any) { p.b.t.Helper(); p.do(out, "evaluate", "code", code) }

// Key presses a key, as Tab, Enter or Space.
func (p *Page) Key(key string) { p.b.t.Helper(); p.do(nil, "key", "key", key) }

// Type types a text.
func (p *Page) Type(text string) { p.b.t.Helper(); p.do(nil, "type", "text", text) }

// Click clicks what a selector finds.
func (p *Page) Click(selector string) { p.b.t.Helper(); p.do(nil, "click", "selector", selector) }

// Fill puts a text into a field.
func (p *Page) Fill(selector, text string) {
	p.b.t.Helper()
	p.do(nil, "fill", "selector", selector, "text", text)
}

// Settle waits until the page that is on its way is there.
func (p *Page) Settle() { p.b.t.Helper(); p.do(nil, "settle") }

// Where is the page's address.
func (p *Page) Where() (url string) {
	p.b.t.Helper()
	p.do(&url, "where")
	return url
}

// Log is what the page did so far.
func (p *Page) Log() (l PageLog) {
	p.b.t.Helper()
	p.do(&l, "log")
	return l
}

// RequireAccessible wants a page that passes axe-core and is not wider than the screen: on a light desktop and a dark
// phone, or on a dark desktop and a light phone, by the length of its name; on all four where EnvShots names a folder
// for pictures of each. The page is left as wide as the last of them.
func (p *Page) RequireAccessible(name string) {
	p.b.t.Helper()
	shots := os.Getenv(EnvShots)
	for _, s := range []struct {
		name          string
		width, height int
		dark          bool
	}{
		{"desktop", 1280, 900, false}, {"desktop-dark", 1280, 900, true},
		{"phone", 390, 844, false}, {"phone-dark", 390, 844, true},
	} {
		if others := len(name)%2 == 0; shots == "" && (s.dark == (s.width < 400)) == others {
			continue
		}
		p.do(nil, "screen", "width", s.width, "height", s.height, "dark", s.dark)
		if shots != "" {
			p.do(nil, "shot", "path", filepath.Join(shots, name+"-"+s.name+".png"))
		}
		var got struct {
			Violations, Incomplete []struct { // rules of axe-core
				ID, Help string
				Nodes    []string
			}
			Passes int
		}
		p.do(&got, "axe")
		require.Greater(p.b.t, got.Passes, 10, "axe judged the page")
		require.Empty(p.b.t, got.Violations, "%s on a %s", name, s.name)
		require.Empty(p.b.t, got.Incomplete, "%s on a %s: rules that axe cannot judge", name, s.name)
		var over int
		p.Eval(`document.documentElement.scrollWidth - document.documentElement.clientWidth`, &over)
		require.LessOrEqual(p.b.t, over, 0, "%s is wider than a %s", name, s.name)
	}
}
