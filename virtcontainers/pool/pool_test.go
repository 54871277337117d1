package pool_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/pool"
)

const name = "0123"

func newPool(t *testing.T) pool.Pool {
	t.Helper()
	return pool.Pool{Dir: filepath.Join(t.TempDir(), "p")}
}

// add makes a spare that is ready, which is this process.
func add(t *testing.T, p pool.Pool, id string) (*pool.Entry, *net.UnixListener) {
	t.Helper()
	e, err := p.Add(id, pool.Info{Name: name, Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := e.Offer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		if err := e.Remove(); err != nil {
			t.Error(err)
		}
	})
	return e, l
}

func states(t *testing.T, p pool.Pool) map[string]pool.State {
	t.Helper()
	list, err := p.List()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]pool.State)
	for _, s := range list {
		got[s.ID] = s.State
	}
	return got
}

// serve takes one order.
func serve(l *net.UnixListener) (*pool.Request, error) {
	conn, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	r, err := pool.Receive(conn)
	if err != nil {
		return nil, err
	}
	return r, r.Take()
}

func TestClaim(t *testing.T) {
	p := newPool(t)
	if c, err := p.Claim(t.Context(), name); c != nil || err != nil {
		t.Fatalf("without a pool: %v, %v", c, err)
	}
	e, l := add(t, p, "a")
	if c, err := p.Claim(t.Context(), "other"); c != nil || err != nil {
		t.Errorf("a spare of another name: %v, %v", c, err)
	}
	if n, err := p.Ready(name); n != 1 || err != nil || !e.Offered() {
		t.Errorf("ready: %d, %v", n, err)
	}
	want := pool.Order{Args: []string{"shim", "-id", "x"}, Env: []string{"A=b"}, Dir: "/tmp"}
	got := make(chan *pool.Request, 1)
	go func() {
		r, err := serve(l)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	c, err := p.Claim(t.Context(), name)
	if err != nil || c == nil || c.Process.PID != os.Getpid() {
		t.Fatalf("claim: %+v, %v", c, err)
	}
	if diff := cmp.Diff(map[string]pool.State{"a": pool.Claimed}, states(t, p)); diff != "" || e.Offered() {
		t.Errorf("offered: %v, %s", e.Offered(), diff)
	}
	if mine, err := e.Withdraw(); mine || err != nil {
		t.Errorf("withdraw after a claim: %v, %v", mine, err)
	}
	file, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := errors.Join(c.Give(want, file), c.Begin()); err != nil {
		t.Fatal(err)
	}
	r := <-got
	if r == nil {
		t.FailNow()
	}
	if diff := cmp.Diff(want, r.Order); diff != "" {
		t.Error(diff)
	}
	kept := r.Keep()
	passed, err := kept.Stat()
	mine, err2 := file.Stat()
	if err := errors.Join(err, err2, kept.Close()); err != nil || !os.SameFile(passed, mine) {
		t.Errorf("another file was passed: %v", err)
	}
}

// However many claim at once, each spare has one claimer.
func TestClaimRace(t *testing.T) {
	p := newPool(t)
	const spares, claimers = 5, 40
	for i := range spares {
		add(t, p, string(rune('a'+i)))
	}
	var won, withdrawn atomic.Int32
	var all sync.WaitGroup
	begin := make(chan struct{})
	for range claimers {
		all.Go(func() {
			<-begin
			c, err := p.Claim(t.Context(), name)
			if err != nil {
				t.Error(err)
			}
			if c != nil {
				won.Add(1)
			}
		})
	}
	e, _ := add(t, p, "z")
	all.Go(func() {
		<-begin
		if mine, err := e.Withdraw(); err != nil {
			t.Error(err)
		} else if mine {
			withdrawn.Add(1)
		}
	})
	close(begin)
	all.Wait()
	if won.Load()+withdrawn.Load() != spares+1 {
		t.Errorf("%d claims and %d withdrawals of %d spares", won.Load(), withdrawn.Load(), spares+1)
	}
}

// A claimer that ends early, or sends nonsense, gets nothing.
func TestBadClaimer(t *testing.T) {
	for what, act := range map[string]func(*net.UnixConn) error{
		"ends":           func(c *net.UnixConn) error { return nil },
		"no file":        func(c *net.UnixConn) error { _, err := c.Write([]byte("{}")); return err },
		"no order":       func(c *net.UnixConn) error { _, err := c.Write([]byte("x")); return err },
		"ends too early": nil,
	} {
		p := newPool(t)
		_, l := add(t, p, "a")
		done := make(chan error, 1)
		go func() {
			_, err := serve(l)
			done <- err
		}()
		if act == nil {
			c, err := p.Claim(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Give(pool.Order{}, os.Stdin); err != nil {
				t.Error(err)
			}
			c.Abandon()
		} else {
			conn, err := net.DialUnix("unixpacket", nil, l.Addr().(*net.UnixAddr))
			if err != nil { // it was renamed
				conn, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(p.Dir, name+".a"), Net: "unixpacket"})
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(act(conn), conn.Close()); err != nil {
				t.Error(err)
			}
		}
		if err := <-done; err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// A spare that does not answer in time is not waited for.
func TestSilentSpare(t *testing.T) {
	p := newPool(t)
	add(t, p, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c, err := p.Claim(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Give(pool.Order{}, os.Stdin); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("give: %v", err)
	}
	c.Abandon()
}

// dead makes the place of a spare whose process has ended, with a machine and a
// share's daemon that have not, and returns these two.
func dead(t *testing.T, p pool.Pool, id string) (vm, daemon persist.Process) {
	t.Helper()
	e, _ := add(t, p, id)
	file := filepath.Join(e.Dir(), "spare.json")
	var info pool.Info
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &info)
	}
	info.Process.Start++ // another process had the pid
	if err == nil {
		text, err = json.Marshal(info)
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	vm, daemon = sleeper(t), sleeper(t)
	state, err := persist.Create(e.Dir(), persist.Owner{}, "spare-"+id)
	if err == nil {
		err = state.Update(func(r *persist.Record) { r.VM, r.FSDaemon = vm, daemon })
	}
	if err != nil {
		t.Fatal(err)
	}
	return vm, daemon
}

// sleeper starts a process that does nothing.
func sleeper(t *testing.T) persist.Process {
	t.Helper()
	c := exec.Command("sleep", "100")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.Wait() }()
	is, err := persist.Identify(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// Tidy removes what dead spares left, and nothing of others.
func TestTidy(t *testing.T) {
	p := newPool(t)
	vm, daemon := dead(t, p, "dead")
	add(t, p, "live")
	if diff := cmp.Diff(map[string]pool.State{"live": pool.Ready}, states(t, p)); diff != "" {
		t.Error(diff)
	}
	if err := p.Tidy(); err != nil {
		t.Error(err)
	}
	if vm.Alive() || daemon.Alive() {
		t.Errorf("the dead spare's machine runs: %v, its share's daemon: %v", vm.Alive(), daemon.Alive())
	}
	entries, err := os.ReadDir(p.Dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != name+".live spare-live" || err != nil {
		t.Errorf("left: %s, %v", got, err)
	}
}

// The name depends on all that distinguishes shims before their pods are known.
func TestNameOf(t *testing.T) {
	seen := make(map[string]bool)
	for _, of := range [][3]string{{"a", "b", "c"}, {"x", "b", "c"}, {"a", "x", "c"}, {"a", "b", "x"}, {"ab", "", "c"}} {
		n, err := pool.NameOf(of[0], of[1], []byte(of[2]))
		again, err2 := pool.NameOf(of[0], of[1], []byte(of[2]))
		if err := errors.Join(err, err2); err != nil || n != again || seen[n] || len(n) != 32 {
			t.Errorf("%v: %s, %s, %v", of, n, again, err)
		}
		seen[n] = true
	}
}

// The directory must be one that only this user can change.
func TestForeignDirectory(t *testing.T) {
	p := newPool(t)
	if err := os.Symlink(t.TempDir(), p.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Add("a", pool.Info{Name: name}); err == nil {
		t.Error("a link is taken for the directory")
	}
}

// What a spare left that was killed while it removed itself goes, but not before
// one that is doing so has had the time.
func TestTidyWithoutARecord(t *testing.T) {
	p := newPool(t)
	old := time.Now().Add(-time.Hour)
	want := []string{"spare-young"}
	later := time.Now().Add(time.Hour) // the clock was set back since
	for dir, at := range map[string]time.Time{"spare-old": old, "spare-young": time.Now(), ".new-old": old, "spare-later": later} {
		path := filepath.Join(p.Dir, dir)
		if err := errors.Join(os.MkdirAll(filepath.Join(path, "record"), 0o700), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Tidy(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(p.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Error(diff)
	}
}
