package filesync

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// polled makes a copy of a source that cannot be watched, with all that it
// logs.
func polled(t *testing.T, g *fakeGuest, source string, limits Limits) (*Copy, *bytes.Buffer) {
	t.Helper()
	var text bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(&text)
	ctx := log.WithLogger(t.Context(), logrus.NewEntry(logger))
	src, err := newSource(source, limits)
	must(t, err)
	w := &watcher{happened: make(chan struct{}, 1)}
	w.poll(ctx, unix.EMFILE)
	w.poll(ctx, unix.EMFILE)
	c := &Copy{guest: g, target: target, source: src, watch: w, sent: tree{}, closing: make(chan struct{})}
	must(t, c.update(ctx))
	c.running.Go(func() { c.run(ctx) })
	t.Cleanup(c.Close)
	return c, &text
}

func TestPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, g := someFiles(t), newGuest(t)
		removeBad(t, source)
		c, text := polled(t, g, source, roomy)
		write(t, source+"/f", "other")
		time.Sleep(pollTime)
		synctest.Wait()
		if diff := cmp.Diff(words(t, source), words(t, g.path(target))); diff != "" {
			t.Error(diff)
		}
		calls := g.calls
		time.Sleep(10 * pollTime)
		synctest.Wait()
		if g.calls != calls {
			t.Errorf("%d calls without a change", g.calls-calls)
		}
		c.Close()
		if n := strings.Count(text.String(), "they cannot be watched"); n != 1 {
			t.Errorf("said %d times:\n%s", n, text)
		}
	})
}

// slowGuest takes its time for each call.
type slowGuest struct {
	*fakeGuest
	takes time.Duration
}

func (g slowGuest) ChangeFiles(ctx context.Context, changes []*api.FileChange) error {
	select {
	case <-time.After(g.takes):
		return g.fakeGuest.ChangeFiles(ctx, changes)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A copy may take as long as its caller has; later ones, without a caller, are
// bounded.
func TestSlowGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := t.TempDir()
		write(t, source+"/a", "1")
		src, err := newSource(source, roomy)
		must(t, err)
		defer src.close()
		w := &watcher{happened: make(chan struct{}, 1)}
		w.poll(t.Context(), unix.EMFILE)
		c := &Copy{guest: slowGuest{newGuest(t), 3 * callTimeout}, target: target, source: src, watch: w, sent: tree{}, closing: make(chan struct{})}
		ctx, cancel := context.WithTimeout(t.Context(), 4*callTimeout)
		defer cancel()
		must(t, c.update(ctx))
		write(t, source+"/a", "other")
		began := time.Now()
		if err := c.update(context.WithoutCancel(ctx)); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != callTimeout {
			t.Errorf("an update without a deadline ended after %v: %v", time.Since(began), err)
		}
	})
}

func TestSpecialFilesAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, g := t.TempDir(), newGuest(t)
		for i := range maxNamed + 2 {
			must(t, unix.Mkfifo(filepath.Join(source, fmt.Sprint(i)), 0o600))
		}
		c, text := polled(t, g, source, roomy)
		time.Sleep(10 * pollTime)
		c.Close()
		if n, m := strings.Count(text.String(), "a FIFO"), strings.Count(text.String(), "2 more of such files"); n != maxNamed || m != 1 {
			t.Errorf("said %d and %d times:\n%s", n, m, text)
		}
	})
}

func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, g := t.TempDir(), newGuest(t)
		write(t, source+"/a", "1")
		c, text := polled(t, g, source, roomy)
		var tries []time.Duration
		began := time.Now()
		answer := func(int) error {
			if tries = append(tries, time.Since(began)); len(tries) <= 8 {
				return errors.New("no")
			}
			return nil
		}
		g.set(func() { g.answer = answer })
		write(t, source+"/a", "2")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s := time.Second
		want := []time.Duration{2 * s, 3 * s, 5 * s, 9 * s, 17 * s, 33 * s, 65 * s, 129 * s, 193 * s}
		if diff := cmp.Diff(want, tries); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(words(t, source), words(t, g.path(target))); diff != "" {
			t.Error(diff)
		}
		c.Close()
		if n, m := strings.Count(text.String(), "cannot bring"), strings.Count(text.String(), "up to date again"); n != 1 || m != 1 {
			t.Errorf("said %d and %d times:\n%s", n, m, text)
		}
	})
}

// A source that grows too large is reported once, and followed again when it
// has shrunk.
func TestTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, g := t.TempDir(), newGuest(t)
		write(t, source+"/a", "1")
		c, text := polled(t, g, source, Limits{Files: 1, Bytes: 1})
		before := words(t, g.path(target))
		write(t, source+"/b", "")
		write(t, source+"/a", "2")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(before, words(t, g.path(target))); diff != "" {
			t.Error(diff)
		}
		must(t, os.Remove(source+"/b"))
		c.watch.signal()
		time.Sleep(time.Second)
		synctest.Wait()
		if diff := cmp.Diff(words(t, source), words(t, g.path(target))); diff != "" {
			t.Error(diff)
		}
		c.Close()
		if n := strings.Count(text.String(), "it has more than 1 files"); n != 1 {
			t.Errorf("said %d times:\n%s", n, text)
		}
	})
}

// When an answer is lost, the call's effect is unknown: everything in it is
// sent again, including what has since changed back.
func TestAfterALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, g := t.TempDir(), newGuest(t)
		for _, name := range []string{"stays", "gone", "changed", "dir/f"} {
			write(t, filepath.Join(source, name), "1")
		}
		c, _ := polled(t, g, source, roomy)
		must(t, os.Remove(source+"/gone"))
		must(t, os.RemoveAll(source+"/dir"))
		for _, name := range []string{"changed", "new", "dir", "short"} {
			write(t, filepath.Join(source, name), "2")
		}
		g.set(func() { g.lost = true })
		time.Sleep(pollTime)
		synctest.Wait()
		must(t, os.Remove(source+"/short"))
		must(t, os.Remove(source+"/dir"))
		write(t, source+"/dir/f", "3")
		g.set(func() { g.lost = false })
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(words(t, source), words(t, g.path(target))); diff != "" {
			t.Error(diff)
		}
		c.Close()
	})
}

func TestGuestLostFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, g := t.TempDir(), newGuest(t)
		write(t, source+"/d/a", "1")
		write(t, source+"/d/b", "1")
		polled(t, g, source, roomy)
		must(t, os.RemoveAll(g.path(target))) // As a container with write access may do.
		answer := func(call int) error {
			if call == 2 {
				return fmt.Errorf("change: %w", errdefs.ErrNotFound)
			}
			return nil
		}
		g.set(func() { g.answer = answer })
		write(t, source+"/d/b", "2")
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(words(t, source), words(t, g.path(target))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPlan(t *testing.T) {
	dir, file, link := entry{kind: directory}, entry{kind: regular}, entry{kind: symlink, link: "x"}
	doubt := func(k kind) entry { return entry{kind: k, doubt: true} }
	for name, test := range map[string]struct {
		has, want tree
		steps     []string
	}{
		"nothing":             {tree{"": dir, "a": file, "l": link}, tree{"": dir, "a": file, "l": link}, nil},
		"all":                 {tree{}, tree{"": dir, "..data": link, "-": link, "d": dir, "d/f": file, "d/..data": link}, []string{"dir ", "dir d", "file d/f", "link ..data", "link d/..data", "link -"}},
		"gone":                {tree{"": dir, "d": dir, "d/e": dir, "d/e/f": file, "g": file}, tree{"": dir}, []string{"remove d", "remove g"}},
		"one of a directory":  {tree{"": dir, "d": dir, "d/e": dir, "d/e/f": file}, tree{"": dir, "d": dir}, []string{"remove d/e"}},
		"directory to file":   {tree{"": dir, "d": dir, "d/e": file}, tree{"": dir, "d": file}, []string{"remove d", "file d"}},
		"directory to link":   {tree{"": dir, "d": dir, "d/e": file}, tree{"": dir, "d": link}, []string{"remove d", "link d"}},
		"file to directory":   {tree{"": dir, "d": file}, tree{"": dir, "d": dir, "d/e": file}, []string{"remove d", "dir d", "file d/e"}},
		"file to link":        {tree{"": dir, "d": file}, tree{"": dir, "d": link}, []string{"link d"}},
		"in doubt":            {tree{"": dir, "a": doubt(regular), "d": doubt(directory), "g": doubt(regular)}, tree{"": dir, "a": file, "d": dir}, []string{"file a", "dir d", "remove g"}},
		"of a kind in doubt":  {tree{"": dir, "d": doubt(unknown), "d/e": file, "d/g": file}, tree{"": dir, "d": dir, "d/e": file}, []string{"remove d", "dir d", "file d/e"}},
		"names like the dirs": {tree{"": dir, "d": dir, "d-": file, "d/e": file}, tree{"": dir, "d-": file}, []string{"remove d"}},
	} {
		var got []string
		for _, s := range plan(test.has, test.want) {
			got = append(got, map[kind]string{unknown: "remove ", directory: "dir ", regular: "file ", symlink: "link "}[s.want.kind]+s.path)
		}
		if diff := cmp.Diff(test.steps, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Whichever steps took effect, the next plan leads to the wanted state.
func TestPlanAfterDoubt(t *testing.T) {
	dir, file, link := entry{kind: directory}, entry{kind: regular}, entry{kind: symlink}
	kinds := []entry{{}, dir, file, link}
	for _, first := range kinds {
		for _, second := range kinds {
			for _, third := range kinds {
				made := func(e entry) tree {
					if e.kind == unknown {
						return tree{"": dir}
					}
					return tree{"": dir, "x": e}
				}
				for _, done := range []bool{false, true} {
					is, known := made(first), made(first)
					for _, s := range plan(known, made(second)) {
						if done {
							is.did(s)
						}
						known.doubts(s)
					}
					for _, s := range plan(known, made(third)) {
						if (is[s.path].kind == directory) != (s.want.kind == directory) && s.want.kind != unknown && is[s.path].kind != unknown {
							t.Errorf("%v %v %v: %v would be put on %v", first.kind, second.kind, third.kind, s.want.kind, is[s.path].kind)
						}
						is.did(s)
						known.did(s)
					}
					if diff := cmp.Diff(made(third), is, cmp.AllowUnexported(entry{})); diff != "" {
						t.Errorf("%v %v %v, done %v: %s", first.kind, second.kind, third.kind, done, diff)
					}
				}
			}
		}
	}
}

// A file that is replaced by a link while it is copied is not followed.
func TestSendFollowsNoLink(t *testing.T) {
	source, g := t.TempDir(), newGuest(t)
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "secret")
	write(t, source+"/f", "public")
	src, err := newSource(source, roomy)
	must(t, err)
	defer src.close()
	found, err := src.look(nil)
	must(t, err)
	must(t, os.Remove(source+"/f"))
	must(t, os.Symlink(secret, source+"/f"))
	c := &Copy{guest: g, target: target, source: src, sent: tree{}, closing: make(chan struct{})}
	if err := c.send(t.Context(), plan(tree{}, found.tree), false); !errors.Is(err, errChanged) {
		t.Error(err)
	}
	must(t, c.send(t.Context(), plan(tree{}, found.tree), true))
	if diff := cmp.Diff([]string{"dir "}, g.take()); diff != "" {
		t.Error(diff)
	}
}

// Two copies of one directory both get its changes, and one still does when the
// other has ended.
func TestCopiesOfOneSource(t *testing.T) {
	source := t.TempDir()
	write(t, source+"/f", "1")
	one, two := newGuest(t), newGuest(t)
	first := start(t, one, source, roomy)
	start(t, two, source+"/f", roomy)
	write(t, source+"/f", "2")
	one.follows(t, source)
	two.follows(t, source+"/f")
	first.Close()
	replace(t, source+"/f", "3")
	two.follows(t, source+"/f")
	write(t, source+"/f", "4")
	two.follows(t, source+"/f")
	if shared.in == nil || shared.in.users != 1 {
		t.Errorf("%+v", shared.in)
	}
}

// Files that have left the tree are no longer watched.
func TestWatchesAreBounded(t *testing.T) {
	source, g := t.TempDir(), newGuest(t)
	other := t.TempDir()
	c := start(t, g, source, roomy)
	for i := range 20 {
		name := fmt.Sprint(i)
		write(t, filepath.Join(source, name, "f"), name)
		g.follows(t, source)
		must(t, os.Rename(filepath.Join(source, name), filepath.Join(other, name)))
		g.follows(t, source)
	}
	c.Close()
	if n := len(c.watch.watched); n != 0 {
		t.Errorf("%d files are watched after the end", n)
	}
}

func TestDispatch(t *testing.T) {
	w := &watcher{happened: make(chan struct{}, 1), watched: map[int32]watched{1: {}, 2: {name: "x"}}}
	in := &instance{watchers: map[int32]map[*watcher]bool{1: {w: true}, 2: {w: true}}}
	event := func(wd int32, mask uint32, name string) []byte {
		b := binary.NativeEndian.AppendUint32(nil, uint32(wd))
		b = binary.NativeEndian.AppendUint32(b, mask)
		b = binary.NativeEndian.AppendUint32(b, 0)
		b = binary.NativeEndian.AppendUint32(b, uint32(len(name)))
		return append(b, name...)
	}
	for _, test := range []struct {
		name   string
		events []byte
		want   bool
	}{
		{"any name", event(1, unix.IN_CREATE, "a\x00\x00\x00"), true},
		{"the name", event(2, unix.IN_CREATE, "x\x00\x00\x00"), true},
		{"another name", event(2, unix.IN_CREATE, "y\x00\x00\x00"), false},
		{"itself", event(2, unix.IN_DELETE_SELF, ""), true},
		{"of no watch", event(3, unix.IN_CREATE, ""), false},
		{"overflow", event(-1, unix.IN_Q_OVERFLOW, ""), true},
		{"the second of two", append(event(3, 0, "y\x00\x00\x00"), event(1, 0, "")...), true},
		{"cut short", event(1, 0, "abcd")[:18], false},
		{"nothing", nil, false},
		{"the last one", event(1, unix.IN_IGNORED, ""), true},
		{"after that", event(1, unix.IN_CREATE, ""), false},
	} {
		in.dispatch(test.events)
		if got := len(w.happened) > 0; got != test.want {
			t.Errorf("%s: told %v", test.name, got)
		}
		for len(w.happened) > 0 {
			<-w.happened
		}
	}
}

// A file that grows while it is copied is bounded too.
func TestGrowthWhileCopied(t *testing.T) {
	source, g := t.TempDir(), newGuest(t)
	write(t, source+"/f", "1")
	src, err := newSource(source, Limits{Files: 1, Bytes: 5})
	must(t, err)
	defer src.close()
	found, err := src.look(nil)
	must(t, err)
	write(t, source+"/f", "123456")
	c := &Copy{guest: g, target: target, source: src, sent: tree{}, closing: make(chan struct{})}
	if err := c.send(context.Background(), plan(tree{}, found.tree), true); !errdefs.IsResourceExhausted(err) {
		t.Error(err)
	}
}
