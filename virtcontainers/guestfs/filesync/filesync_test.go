package filesync

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// someFiles makes a directory with some of everything.
func someFiles(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "source")
	write(t, dir+"/f", "content")
	write(t, dir+"/a/b/c", strings.Repeat("x", 100))
	write(t, dir+"/a-b", "")
	write(t, dir+"/large", strings.Repeat("0123456789abcdef", 5<<16))
	must(t, os.Chmod(dir+"/f", 0o751|os.ModeSetuid))
	must(t, os.Chmod(dir+"/a", 0o770|os.ModeSetgid|os.ModeSticky))
	must(t, os.Chtimes(dir+"/f", time.Time{}, time.Unix(1_000_000_000, 123_456_789)))
	must(t, os.Symlink("../nowhere", dir+"/a/link"))
	must(t, os.Symlink("/etc", dir+"/out"))
	must(t, unix.Mkfifo(dir+"/a/fifo", 0o600))
	must(t, os.WriteFile(dir+"/bad\xff", nil, 0o600))
	write(t, dir+"/bad\xff-d/f", "")
	l, err := net.Listen("unix", dir+"/socket")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	if os.Getuid() == 0 {
		must(t, os.Chown(dir+"/a-b", 12, 34))
		must(t, os.Chown(dir+"/a", 0, 99))
		must(t, os.Chmod(dir+"/a", 0o770|os.ModeSetgid|os.ModeSticky))
	}
	return dir
}

// notUTF8 is how the files that removeBad removes are logged.
const notUTF8 = "name that is not UTF-8"

// removeBad removes the files of someFiles that no message can hold, from the source.
func removeBad(t *testing.T, source string) {
	t.Helper()
	must(t, errors.Join(os.Remove(source+"/bad\xff"), os.RemoveAll(source+"/bad\xff-d")))
}

func TestStart(t *testing.T) {
	source, g := someFiles(t), newGuest(t)
	c, err := Start(t.Context(), g, source, target, roomy)
	must(t, err)
	c.Close()
	c.Close()
	if err := c.source.exists(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close the source is open: %v", err)
	}
	removeBad(t, source)
	if diff := cmp.Diff(words(t, source), words(t, g.path(target))); diff != "" {
		t.Error(diff)
	}
	want := []string{"dir ", "dir a", "file a-b", "dir a/b", "file a/b/c", "file f", "file large", "link a/link", "link out"}
	if diff := cmp.Diff(want, g.take()); diff != "" {
		t.Error(diff)
	}
	wantSpecial := map[string]string{"a/fifo": "FIFO", "socket": "UNIX socket", "bad\xff": notUTF8, "bad\xff-d": notUTF8}
	if diff := cmp.Diff(wantSpecial, c.skipped); diff != "" {
		t.Error(diff)
	}
	if g.calls < 3 {
		t.Errorf("5 MiB came in %d calls", g.calls)
	}
}

// What is not copied is no change: a source is read once.
func TestLookIsQuiet(t *testing.T) {
	src, err := newSource(someFiles(t), roomy)
	must(t, err)
	defer src.close()
	found, err := src.look(nil)
	must(t, err)
	if found.moved {
		t.Error("a look says that the source changed")
	}
}

func TestFollows(t *testing.T) {
	source, g := someFiles(t), newGuest(t)
	removeBad(t, source)
	start(t, g, source, roomy)
	for name, change := range map[string]func(){
		"written in place": func() { write(t, source+"/f", "other") },
		"appended": func() {
			f, err := os.OpenFile(source+"/f", os.O_APPEND|os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteString("more")
			must(t, errors.Join(err, f.Close()))
		},
		"held open": func() {
			f, err := os.OpenFile(source+"/a/b/c", os.O_WRONLY, 0)
			must(t, err)
			t.Cleanup(func() { _ = f.Close() })
			_, err = f.WriteString("first")
			must(t, err)
		},
		"replaced":         func() { replace(t, source+"/f", "replaced") },
		"replaced below":   func() { replace(t, source+"/a/b/c", "replaced") },
		"mode":             func() { must(t, os.Chmod(source+"/a/b", 0o711)) },
		"mode of the root": func() { must(t, os.Chmod(source, 0o701)) },
		"made deep":        func() { write(t, source+"/d/e/f/g/h", "deep") },
		"renamed": func() {
			write(t, source+"/r/f", "r")
			must(t, os.Rename(source+"/r", source+"/s"))
		},
		"removed": func() { must(t, os.RemoveAll(source+"/a")); write(t, source+"/a/b/c", "again") },
		"a directory becomes a file": func() {
			write(t, source+"/k/f", "f")
			g.follows(t, source)
			must(t, os.RemoveAll(source+"/k"))
			write(t, source+"/k", "file")
			g.follows(t, source)
			must(t, os.Remove(source+"/k"))
			must(t, os.Symlink("f", source+"/k"))
			g.follows(t, source)
			must(t, os.Remove(source+"/k"))
			write(t, source+"/k/g", "g")
		},
		"a file becomes a socket": func() {
			write(t, source+"/x", "x")
			g.follows(t, source)
			must(t, os.Remove(source+"/x"))
			must(t, unix.Mkfifo(source+"/x", 0o600))
		},
		"many": func() {
			for i := range 300 {
				write(t, fmt.Sprintf("%s/many/%d/f", source, i%10), fmt.Sprint(i))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			change()
			g.follows(t, source)
		})
	}
}

// atomicWriter is a volume of Kubernetes' (kubelet's AtomicWriter).
type atomicWriter struct {
	dir  string
	next int
}

func (w *atomicWriter) update(t testing.TB, content string, names ...string) {
	t.Helper()
	old, _ := os.Readlink(w.dir + "/..data")
	w.next++
	now := fmt.Sprintf("..2026_11_20_%04d", w.next)
	for _, name := range names {
		write(t, filepath.Join(w.dir, now, name), content)
	}
	must(t, os.Symlink(now, w.dir+"/..data_tmp"))
	must(t, os.Rename(w.dir+"/..data_tmp", w.dir+"/..data"))
	for _, name := range names {
		if err := os.Symlink("..data/"+name, filepath.Join(w.dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	links, err := filepath.Glob(w.dir + "/[^.]*")
	must(t, err)
	for _, link := range links {
		if !slices.Contains(names, filepath.Base(link)) {
			must(t, os.Remove(link))
		}
	}
	if old != "" {
		must(t, os.RemoveAll(filepath.Join(w.dir, old)))
	}
}

func TestKubernetesUpdate(t *testing.T) {
	w, g := atomicWriter{dir: t.TempDir()}, newGuest(t)
	w.update(t, "1", "a", "-b", "c")
	start(t, g, w.dir, roomy)
	w.update(t, "2", "a", "-b", "d")
	g.follows(t, w.dir)
	var order []string
	for _, done := range g.take() {
		for _, step := range []string{"file ..2026_11_20_0002/a", "link ..data", "link d", "remove ..2026_11_20_0001", "remove c"} {
			if done == step {
				order = append(order, done)
			}
		}
	}
	// Once at the start, with a link "c".
	want := []string{"link ..data", "file ..2026_11_20_0002/a", "link ..data", "link d", "remove ..2026_11_20_0001", "remove c"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
}

// However often the volume changes, ..data in the guest always leads to one
// complete version.
func TestKubernetesUpdatesAreAtomic(t *testing.T) {
	const updates, files = 150, 5
	var names []string
	for i := range files {
		names = append(names, fmt.Sprint("file", i))
	}
	w, g := atomicWriter{dir: t.TempDir()}, newGuest(t)
	w.update(t, "0", names...)
	copying := false
	versions := map[string]bool{}
	g.after = func() {
		if !copying {
			return // No container uses it yet.
		}
		first, err := os.ReadFile(g.path(target + "/..data/" + names[0]))
		if err != nil {
			t.Errorf("after %q: %v", g.done[len(g.done)-1], err)
			return
		}
		versions[string(first)] = true
		for _, name := range names[1:] {
			if content, err := os.ReadFile(g.path(target + "/" + name)); err != nil || string(content) != string(first) {
				t.Errorf("after %q: %s has version %q, the first %q: %v", g.done[len(g.done)-1], name, content, first, err)
			}
		}
	}
	start(t, g, w.dir, roomy)
	g.set(func() { copying = true })
	for i := range updates {
		w.update(t, fmt.Sprint(i+1), names...)
		if i%7 == 0 {
			g.follows(t, w.dir) // The next burst begins at some point of its pause.
		}
	}
	g.follows(t, w.dir)
	t.Logf("the guest saw %d of %d versions", len(versions), updates)
}

// A volume that changes while it is sent never arrives as a mix of two
// versions.
func TestKubernetesUpdateWhileSent(t *testing.T) {
	content := func(version string) string { return strings.Repeat(version, 3<<19) } // a request for each
	names := []string{"a", "b", "c"}
	w, g := atomicWriter{dir: t.TempDir()}, newGuest(t)
	w.update(t, content("1"), names...)
	start(t, g, w.dir, roomy)
	once := false
	g.set(func() {
		g.after = func() {
			last := g.done[len(g.done)-1]
			if last == "file ..2026_11_20_0002/a" && !once {
				once = true
				w.update(t, content("3"), names...)
			}
			for _, name := range names {
				got, err := os.ReadFile(g.path(target + "/" + name))
				if err != nil || string(got) != content("1") && string(got) != content("3") {
					t.Errorf("after %q: %s has %.1q: %v", last, name, got, err)
				}
			}
		}
	})
	w.update(t, content("2"), names...)
	g.follows(t, w.dir)
	if !once {
		t.Error("it did not change while it was sent")
	}
}

func TestOneFile(t *testing.T) {
	source, g := filepath.Join(t.TempDir(), "dir/hosts"), newGuest(t)
	write(t, source, "1")
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(source, link))
	c := start(t, g, link, Limits{Files: 1, Bytes: 10})
	g.follows(t, source)
	write(t, source, "2")
	g.follows(t, source)
	replace(t, source, "3")
	g.follows(t, source)
	write(t, source, "4") // The new file is watched as the old one was.
	g.follows(t, source)
	must(t, os.Remove(source))
	write(t, source, "5")
	g.follows(t, source)
	// Changed by way of another directory, as with a file that is bind-mounted.
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Link(source, other); err == nil {
		write(t, other, "6")
		g.follows(t, source)
	}
	must(t, os.RemoveAll(filepath.Dir(source)))
	c.watch.signal() // An open directory's removal is no event.
	c.running.Wait() // It ends by itself.
	if content, err := os.ReadFile(g.path(target)); err != nil || string(content) == "" {
		t.Errorf("the copy is gone: %q, %v", content, err)
	}
}

func TestStartRefuses(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mkfifo(dir+"/fifo", 0o600))
	write(t, dir+"/sub/a", "abc")
	write(t, dir+"/sub/b", "defg")
	no := errors.New("no")
	for _, test := range []struct {
		source string
		limits Limits
		err    error
		want   string
		is     func(error) bool
	}{
		{dir + "/none", roomy, nil, "no such file", func(err error) bool { return errors.Is(err, os.ErrNotExist) }},
		{dir + "/fifo", roomy, nil, "want a directory or a regular file", errdefs.IsInvalidArgument},
		{dir + "/sub", Limits{Files: 1, Bytes: 100}, nil, "it has more than 1 files", errdefs.IsResourceExhausted},
		{dir + "/sub", Limits{Files: 2, Bytes: 6}, nil, "it has 7 bytes or more, want at most 6", errdefs.IsResourceExhausted},
		{dir + "/sub/b", Limits{Files: 1, Bytes: 3}, nil, "it has 4 bytes or more, want at most 3", errdefs.IsResourceExhausted},
		{dir + "/sub", roomy, no, "no", func(err error) bool { return errors.Is(err, no) }},
	} {
		g := newGuest(t)
		g.answer = func(int) error { return test.err }
		_, err := Start(t.Context(), g, test.source, target, test.limits)
		if err == nil || !strings.Contains(err.Error(), test.want) || !test.is(err) || !strings.Contains(err.Error(), "copy "+test.source) {
			t.Errorf("%s: %v, want %q", test.source, err, test.want)
		}
		if err := Check(test.source, test.limits); (err == nil) != (test.err != nil) || err != nil && !test.is(err) {
			t.Errorf("check %s: %v, want %q", test.source, err, test.want)
		}
	}
	must(t, os.MkdirAll(dir+"/special", 0o700))
	for i := range 300 {
		must(t, unix.Mkfifo(fmt.Sprint(dir, "/special/", i), 0o600))
	}
	must(t, Check(dir+"/special", Limits{Files: 300}))
	if err := Check(dir+"/special", Limits{Files: 299}); !errdefs.IsResourceExhausted(err) {
		t.Error(err)
	}
	must(t, Check(dir+"/sub", Limits{Files: 2, Bytes: 7}))
	must(t, Check(dir+"/sub/a", Limits{Files: 1, Bytes: 3}))
}

func TestStartEndsWithItsContext(t *testing.T) {
	source, g := someFiles(t), newGuest(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.answer = func(int) error { return ctx.Err() }
	if _, err := Start(ctx, g, source, target, roomy); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRefusedGrowth(t *testing.T) {
	source, g := t.TempDir(), newGuest(t)
	write(t, source+"/a", "1234")
	start(t, g, source, Limits{Files: 2, Bytes: 10})
	before := words(t, source)
	write(t, source+"/b", "1234567")
	write(t, source+"/b", "") // It may have been seen in between.
	g.follows(t, source)
	must(t, os.Remove(source+"/b"))
	g.follows(t, source)
	if diff := cmp.Diff(before, words(t, source)); diff != "" {
		t.Error(diff)
	}
}

func TestGuestGone(t *testing.T) {
	source, g := t.TempDir(), newGuest(t)
	write(t, source+"/a", "1")
	c := start(t, g, source, roomy)
	g.set(func() { g.answer = func(int) error { return fmt.Errorf("copy: %w", ttrpc.ErrClosed) } })
	write(t, source+"/a", "2")
	c.running.Wait()
}

// Close waits for the call under way, and no call follows.
func TestClose(t *testing.T) {
	source, g := t.TempDir(), newGuest(t)
	c := start(t, g, source, roomy)
	entered, leave := make(chan struct{}), make(chan struct{})
	g.set(func() {
		g.answer = func(int) error {
			close(entered)
			<-leave
			return errors.New("no")
		}
	})
	write(t, source+"/a", "1")
	<-entered
	closed := make(chan struct{})
	go func() {
		c.Close()
		close(closed)
	}()
	select {
	case <-closed:
		t.Error("closed while a call is under way")
	default:
	}
	close(leave)
	<-closed
	if g.calls != 2 {
		t.Errorf("%d calls, want the first copy and the change", g.calls)
	}
}
