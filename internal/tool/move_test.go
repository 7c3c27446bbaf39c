package tool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

func TestMoveFile(t *testing.T) {
	long := strings.Repeat("é", 127)
	for name, tc := range map[string]struct {
		in   moveInput
		want agent.ToolResultData
		to   string // where the content of the source is afterwards; "" = unmoved
	}{
		"rename":            {moveInput{"a.txt", "c.txt"}, Text(`Moved "a.txt" to "c.txt".`), "c.txt"},
		"into a folder":     {moveInput{"a.txt", "sub/a.txt"}, Text(`Moved "a.txt" to "sub/a.txt".`), "sub/a.txt"},
		"unclean":           {moveInput{"./a.txt", "sub//d.txt/"}, Text(`Moved "a.txt" to "sub/d.txt".`), "sub/d.txt"},
		"unicode":           {moveInput{"a.txt", "日本 e\u0301 😀.txt"}, Text("Moved \"a.txt\" to \"日本 e\u0301 😀.txt\"."), "日本 e\u0301 😀.txt"},
		"long":              {moveInput{"a.txt", long}, Text(`Moved "a.txt" to "` + long + `".`), long},
		"case only":         {moveInput{"a.txt", "A.txt"}, Text(`Moved "a.txt" to "A.txt".`), "A.txt"},
		"looks like a flag": {moveInput{"a.txt", "-rf"}, Text(`Moved "a.txt" to "-rf".`), "-rf"},
		"backslash":         {moveInput{"a.txt", `..\x`}, Text(`Moved "a.txt" to "..\x".`), `..\x`},
		"taken by a file":   {moveInput{"a.txt", "b.txt"}, Errorf(`"b.txt" already exists, nothing was moved; the destination is a path with a new file name`), ""},
		"taken by a folder": {moveInput{"a.txt", "sub"}, Errorf(`"sub" already exists, nothing was moved; the destination is a path with a new file name`), ""},
		"itself":            {moveInput{"a.txt", "./a.txt"}, Errorf(`the source and the destination are both "a.txt", there is nothing to move`), ""},
		"missing":           {moveInput{"x.txt", "y.txt"}, Errorf(`"x.txt" does not exist`), ""},
		"no such folder":    {moveInput{"a.txt", "new/a.txt"}, Errorf(`"new" does not exist`), ""},
		"under a file":      {moveInput{"a.txt", "b.txt/a.txt"}, Errorf(`"b.txt" is not a folder`), ""},
		"a folder":          {moveInput{"sub", "sub2"}, Errorf(`"sub" is a folder, not a file`), ""},
		"the top folder":    {moveInput{".", "x"}, Errorf("the top folder itself cannot be moved or replaced"), ""},
		"onto the top":      {moveInput{"a.txt", "."}, Errorf("the top folder itself cannot be moved or replaced"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			f.write("a.txt", "content")
			f.write("b.txt", "other")
			f.write("sub/x", "")
			want := f.tree()
			if tc.to != "" {
				delete(want, "/folder/a.txt")
				want["/folder/"+tc.to] = "content"
			}
			require.Equal(t, tc.want, f.call("move_file", tc.in))
			require.Equal(t, want, f.tree())
		})
	}
}

func TestMoveStopsBeforeItStarts(t *testing.T) {
	f := newFolder(t)
	f.write("a.txt", "content")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.try(ctx, "move_file", moveInput{"a.txt", "b.txt"})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "content", f.tree()["/folder/a.txt"])
}

// Where there is no exclusive rename, a link and a removal do the same, and replace nothing either.
func TestLinkThenRemove(t *testing.T) {
	f := newFolder(t)
	f.write("a.txt", "content")
	f.write("b.txt", "other")
	want := f.tree()
	root, err := os.OpenRoot(f.root)
	require.NoError(t, err)
	defer root.Close()
	require.ErrorIs(t, linkThenRemove(root, movement{"a.txt", "b.txt"}), os.ErrExist)
	require.Equal(t, want, f.tree())
	require.NoError(t, linkThenRemove(root, movement{"a.txt", "c.txt"}))
	delete(want, "/folder/a.txt")
	want["/folder/c.txt"] = "content"
	require.Equal(t, want, f.tree())
}

// Of many movers of one file to many places one succeeds, and of many files to one place one arrives; nothing is lost.
func TestConcurrentMoves(t *testing.T) {
	f := newFolder(t)
	const n = 8
	names := strings.Split("abcdefgh", "")
	f.write("one", "one")
	for _, name := range names {
		f.write("from-"+name, name)
	}
	results := make(chan agent.ToolResultData, 2*n)
	var wg sync.WaitGroup
	for _, name := range names {
		for _, in := range []moveInput{{"one", "to-" + name}, {"from-" + name, "all"}} {
			wg.Go(func() { results <- f.call("move_file", in) })
		}
	}
	wg.Wait()
	close(results)
	moved := 0
	for r := range results {
		if !r.IsError {
			moved++
		}
	}
	require.Equal(t, 2, moved)
	contents := map[string]int{}
	for _, c := range f.tree() {
		contents[c]++
	}
	for _, c := range append(names, "one") {
		require.Equal(t, 1, contents[c], c)
	}
}

// While a folder is swapped for a link that leads outside and back, over and over, moves, reads and listings through its name
// never touch what is outside.
func TestSwappedFolderNeverLeadsOutside(t *testing.T) {
	f := newFolder(t)
	f.write("sub/secret.txt", "inside")
	f.write("a.txt", "content")
	sub, aside, link := filepath.Join(f.root, "sub"), filepath.Join(f.root, "aside"), filepath.Join(f.root, "link")
	require.NoError(t, os.Symlink("../outside", link))
	stop := make(chan struct{})
	swapped := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			select {
			case <-stop:
				swapped <- nil
				return
			default:
				err = errors.Join(os.Rename(sub, aside), os.Rename(link, sub), os.Rename(sub, link), os.Rename(aside, sub))
			}
		}
		swapped <- err
	}()
	for range 400 {
		r := f.call("move_file", moveInput{"a.txt", "sub/a.txt"})
		if !r.IsError {
			for f.call("move_file", moveInput{"sub/a.txt", "a.txt"}).IsError { // until the folder is there again
			}
		}
		r = f.call("read_text", pathArg{"sub/secret.txt"})
		require.True(t, r.IsError || r.Content == "inside", r.Content)
		require.True(t, f.call("move_file", moveInput{"sub/secret.txt", "a.txt"}).IsError, "taken, or refused")
	}
	close(stop)
	require.NoError(t, <-swapped)
	require.Equal(t, map[string]string{"/outside": "d---------", "/outside/secret.txt": "secret", "/folder": "d---------", "/folder/a.txt": "content",
		"/folder/link": "L---------", "/folder/sub": "d---------", "/folder/sub/secret.txt": "inside"}, f.tree())
}

func TestReconcile(t *testing.T) {
	moved := `Moved "a.txt" to "b.txt".`
	for name, tc := range map[string]struct {
		prepare func(folder)
		want    Outcome
	}{
		"moved":                    {func(f folder) { f.write("b.txt", "x") }, OutcomeDone},
		"not moved":                {func(f folder) { f.write("a.txt", "x") }, OutcomeNotDone},
		"destination taken":        {func(f folder) { f.write("a.txt", "x"); f.write("b.txt", "y") }, OutcomeNotDone},
		"half of link and remove":  {func(f folder) { f.write("a.txt", "x"); f.hardLink("a.txt", "b.txt") }, OutcomeUnknown},
		"neither":                  {func(folder) {}, OutcomeUnknown},
		"a folder there":           {func(f folder) { f.write("b.txt/x", "") }, OutcomeUnknown},
		"a link there":             {func(f folder) { f.link("x", "b.txt") }, OutcomeUnknown},
		"the source is a folder":   {func(f folder) { f.write("a.txt/x", "") }, OutcomeNotDone},
		"the source is a dead end": {func(f folder) { f.link("nowhere", "a.txt"); f.write("b.txt", "x") }, OutcomeNotDone},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			tc.prepare(f)
			before := f.tree()
			outcome, content := f.reconcile("a.txt", "b.txt")
			require.Equal(t, tc.want, outcome)
			if outcome == OutcomeDone {
				require.Equal(t, moved, content, "the text of a normal run")
			} else {
				require.Empty(t, content)
			}
			require.Equal(t, before, f.tree(), "it has no effect of its own")
		})
	}
}

func (f folder) hardLink(old, name string) {
	f.t.Helper()
	require.NoError(f.t, os.Link(filepath.Join(f.root, old), filepath.Join(f.root, name)))
}

func TestReconcileWhatIsRefusedOrCannotBeSeen(t *testing.T) {
	f := newFolder(t)
	f.link("../outside", "out")
	outcome, _ := f.reconcile("../outside/secret.txt", "b.txt")
	require.Equal(t, OutcomeNotDone, outcome, "such a call never moved anything")
	move, _ := f.set.Lookup("move_file")
	outcome, _, err := move.(Reconciler).Reconcile(t.Context(), Call{Root: f.root, Args: []byte(`{"source":"out/secret.txt","destination":"b.txt"}`)})
	require.Error(t, err)
	require.NotContains(t, err.Error(), f.root)
	require.Equal(t, OutcomeUnknown, outcome)
	require.NoError(t, os.RemoveAll(f.root))
	outcome, _, err = move.(Reconciler).Reconcile(t.Context(), Call{Root: f.root, Args: []byte(`{"source":"a","destination":"b"}`)})
	require.ErrorContains(t, err, "open root")
	require.Equal(t, OutcomeUnknown, outcome)
}
