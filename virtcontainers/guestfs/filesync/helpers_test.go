package filesync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// target is where the copies of these tests are in the guest.
const target = "/guest/1"

var roomy = Limits{Files: 10_000, Bytes: 64 << 20}

// waitTime bounds the wait for what must happen.
const waitTime = 20 * time.Second

// fakeGuest changes files in a directory of the test, as the agent does in the
// guest (agent/files).
type fakeGuest struct {
	t   testing.TB
	dir string
	// called receives a token when a call has ended.
	called chan struct{}

	mu sync.Mutex // guards what follows
	// done lists the changes so far, as text.
	done []string
	// answer, if not nil, is called first and returns the call's error.
	answer func(call int) error
	// after, if not nil, is called after each change.
	after func()
	// lost makes the answers of calls get lost.
	lost    bool
	calls   int
	partial map[string][]byte
}

func newGuest(t testing.TB) *fakeGuest {
	t.Helper()
	return &fakeGuest{t: t, dir: t.TempDir(), called: make(chan struct{}, 1), partial: map[string][]byte{}}
}

func (g *fakeGuest) ChangeFiles(ctx context.Context, changes []*api.FileChange) error {
	defer func() {
		select {
		case g.called <- struct{}{}:
		default:
		}
	}()
	if _, ok := ctx.Deadline(); !ok {
		g.t.Error("a call without a deadline")
	}
	if size := proto.Size(&api.ChangeFilesRequest{Changes: changes}); size > api.MaxChangeFiles {
		g.t.Errorf("a request has %d bytes", size)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	if g.answer != nil {
		if err := g.answer(g.calls); err != nil {
			return err
		}
	}
	for _, c := range changes {
		if err := g.change(c); err != nil {
			return fmt.Errorf("change %s: %w", c.GetPath(), err)
		}
		if g.after != nil {
			g.after()
		}
	}
	if g.lost {
		return context.DeadlineExceeded
	}
	return nil
}

// path returns where a path in the guest is on the host.
func (g *fakeGuest) path(guest string) string { return filepath.Join(g.dir, guest) }

func (g *fakeGuest) change(c *api.FileChange) error {
	path := g.path(c.GetPath())
	rel := strings.TrimPrefix(strings.TrimPrefix(c.GetPath(), target), "/")
	must(g.t, os.MkdirAll(g.path("guest"), 0o755))
	var err error
	switch change := c.GetChange().(type) {
	case *api.FileChange_Directory:
		g.done = append(g.done, "dir "+rel)
		if err = os.Mkdir(path, 0o700); errors.Is(err, os.ErrExist) {
			err = nil
		}
		if err == nil {
			err = g.own(path, c)
		}
	case *api.FileChange_Symlink:
		g.done = append(g.done, "link "+rel)
		if err = os.Symlink(change.Symlink, path+".new"); err == nil {
			err = os.Rename(path+".new", path)
		}
	case *api.FileChange_Remove:
		g.done = append(g.done, "remove "+rel)
		err = os.RemoveAll(path)
	case *api.FileChange_File:
		err = g.part(path, rel, c)
	}
	return err
}

func (g *fakeGuest) part(path, rel string, c *api.FileChange) error {
	part := c.GetFile()
	if part.GetOffset() == 0 {
		g.partial[path] = nil
	}
	if have := len(g.partial[path]); uint64(have) != part.GetOffset() {
		g.t.Errorf("%s: a part at %d after %d bytes", path, part.GetOffset(), have)
	}
	g.partial[path] = append(g.partial[path], part.GetContent()...)
	if !part.GetLast() {
		return nil
	}
	g.done = append(g.done, "file "+rel)
	if part.GetInPlace() != (rel == "") {
		g.t.Errorf("%s: in place: %v", path, part.GetInPlace())
	}
	must(g.t, os.WriteFile(path+".new", g.partial[path], 0o600))
	must(g.t, g.own(path+".new", c))
	must(g.t, os.Chtimes(path+".new", time.Time{}, part.GetMtime().AsTime()))
	delete(g.partial, path)
	return os.Rename(path+".new", path)
}

func (g *fakeGuest) own(path string, c *api.FileChange) error {
	return errors.Join(os.Lchown(path, int(c.GetUid()), int(c.GetGid())), unix.Chmod(path, c.GetMode()))
}

// set changes how the guest answers.
func (g *fakeGuest) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// take returns what was done since the last call.
func (g *fakeGuest) take() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	done := g.done
	g.done = nil
	return done
}

// until waits until so returns true.
func (g *fakeGuest) until(t *testing.T, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	for !so() {
		select {
		case <-g.called:
		case <-ctx.Done():
			t.Fatal("it did not come to be so")
		}
	}
}

// follows waits until the copy equals the source.
func (g *fakeGuest) follows(t *testing.T, source string) {
	t.Helper()
	var diff string
	defer func() {
		if t.Failed() {
			t.Log(diff)
		}
	}()
	g.until(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		diff = cmp.Diff(words(t, source), words(t, g.path(target)))
		return diff == ""
	})
}

// words lists a file, or a directory and everything in it that can be copied.
func words(t testing.TB, root string) (found []string) {
	t.Helper()
	must(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		text := fmt.Sprintf("%s %o %d:%d", rel, st.Mode, st.Uid, st.Gid)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %d.%09d %.100q %d", st.Mtim.Sec, st.Mtim.Nsec, content, len(content))
		case unix.S_IFLNK:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text = rel + " -> " + to
		case unix.S_IFDIR:
		default:
			return nil
		}
		found = append(found, text)
		return nil
	}))
	return found
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

// replace replaces a file by renaming another over it, as engines do.
func replace(t testing.TB, path, content string) {
	t.Helper()
	write(t, path+"~", content)
	must(t, os.Rename(path+"~", path))
}

// start copies a source until the test ends.
func start(t *testing.T, g *fakeGuest, source string, limits Limits) *Copy {
	t.Helper()
	c, err := Start(t.Context(), g, source, target, limits)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}
