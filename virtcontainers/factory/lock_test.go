package factory

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/persist"
)

// makerEnv makes this program, run again, a maker in the directory that it
// names. With makerDeafEnv set the maker ignores the request to end.
const makerEnv, makerDeafEnv = "KATABOX_TEST_MAKER", "KATABOX_TEST_MAKER_DEAF"

func TestMain(m *testing.M) {
	if dir := os.Getenv(makerEnv); dir != "" {
		beMaker(Store{Dir: dir})
		return
	}
	if key := os.Getenv(keeperEnv); key != "" {
		beKeeper(Key(key))
		return
	}
	os.Exit(m.Run())
}

// beMaker makes a template that is never ready.
func beMaker(s Store) {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	_, err := s.Make(ctx, Job{}, func(ctx context.Context, p Place) error {
		if err := os.WriteFile(filepath.Join(p.Dir, MemoryFile), make([]byte, 4096), 0o600); err != nil {
			return err
		}
		_, _ = os.Stdout.WriteString("making\n")
		if os.Getenv(makerDeafEnv) != "" {
			select {}
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		panic(err)
	}
}

// startMaker starts a maker, and waits until it makes a template.
func startMaker(t *testing.T, s Store, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(append(os.Environ(), makerEnv+"="+s.Dir), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("making\n"))); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// RemoveAll ends another process's maker, which cleans up.
func TestRemoveAllEndsMaker(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "store")}
	cmd := startMaker(t, s)
	if p, ok := s.Maker(); !ok || p.PID != cmd.Process.Pid {
		t.Errorf("the maker is %+v, %v; want %d", p, ok, cmd.Process.Pid)
	}
	if _, err := s.Claim(Key("0")); !errdefs.IsUnavailable(err) {
		t.Errorf("claim while one is made: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- s.RemoveAll() }()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the maker ended with %v", err)
	}
	if err := <-done; err != nil || exists(s.Dir) {
		t.Errorf("remove all: %v; the directory is there: %v", err, exists(s.Dir))
	}
}

// A killed maker's lock goes to the next maker, which removes what was left.
func TestKilledMaker(t *testing.T) {
	in, _ := testInputs(t)
	s := Store{Dir: filepath.Join(t.TempDir(), "store")}
	cmd := startMaker(t, s, makerDeafEnv+"=1")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if p, ok := s.Maker(); ok {
		t.Errorf("a dead maker: %+v", p)
	}
	if left, err := filepath.Glob(filepath.Join(s.Dir, makingPrefix+"*", "*", MemoryFile)); len(left) != 1 {
		t.Errorf("the maker left %q, %v", left, err)
	}
	makeOne(t, s, in)
	if left, err := filepath.Glob(filepath.Join(s.Dir, makingPrefix+"*")); len(left) != 0 {
		t.Errorf("the next maker left %q, %v", left, err)
	}
	if err := s.RemoveAll(); err != nil || exists(s.Dir) {
		t.Errorf("remove all: %v; the directory is there: %v", err, exists(s.Dir))
	}
}

// A lock that was passed on belongs to the second process once the first has
// closed it.
func TestLockIsPassedOn(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	mine, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(mine.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := InheritLock(os.NewFile(uintptr(fd), "lock"))
	if err := mine.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lock(); !errdefs.IsUnavailable(err) {
		t.Errorf("the lock is free: %v", err)
	}
	if err := theirs.Sign(); err != nil {
		t.Error(err)
	}
	self, err := persist.Identify(os.Getpid())
	if p, ok := s.Maker(); !ok || err != nil || p != self {
		t.Errorf("the maker is %+v, %v, want %+v, %v", p, ok, self, err)
	}
	if err := theirs.Close(); err != nil {
		t.Error(err)
	}
	if p, ok := s.Maker(); ok {
		t.Errorf("a maker without the lock: %+v", p)
	}
	again, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// When a configuration file's template changes, the old one is removed; those
// of other files stay.
func TestOtherTemplatesOfOneFile(t *testing.T) {
	_, spec := testInputs(t)
	s := Store{Dir: t.TempDir()}
	keys := make(map[string]Key)
	for _, job := range []struct{ config, params string }{{"a", "1"}, {"b", "2"}, {"a", "3"}} {
		spec.KernelParams = job.params
		key, err := s.Make(t.Context(), Job{Inputs: inputsOf(t, spec), Config: job.config}, fill)
		if err != nil {
			t.Fatal(err)
		}
		keys[job.config] = key
	}
	list, err := s.List()
	if err != nil || len(list) != 2 {
		t.Fatalf("list: %+v, %v", list, err)
	}
	for _, i := range list {
		if keys[i.Config] != i.Key {
			t.Errorf("template %s of %q is left", i.Key, i.Config)
		}
	}
}

// A maker whose template is not the one that a pod wants makes none, leaves those that
// there are, and says why.
func TestMakeUnwanted(t *testing.T) {
	_, spec := testInputs(t)
	s := Store{Dir: t.TempDir()}
	good, err := s.Make(t.Context(), Job{Inputs: inputsOf(t, spec), Config: "a"}, fill)
	if err != nil {
		t.Fatal(err)
	}
	wanted := Key(strings.Repeat("cd", keyBytes))
	spec.KernelParams = "other"
	_, err = s.Make(t.Context(), Job{Inputs: inputsOf(t, spec), Config: "a", Wanted: wanted}, fill)
	if !errdefs.IsFailedPrecondition(err) {
		t.Errorf("make: %v", err)
	}
	if list, err := s.List(); err != nil || len(list) != 1 || list[0].Key != good {
		t.Errorf("list: %+v, %v; want only %s", list, err, good)
	}
	if f, ok := s.Failure(wanted); !ok || !strings.Contains(f.Why, string(wanted)) {
		t.Errorf("the failure is recorded as %+v", f)
	}
	if key, err := s.Make(t.Context(), Job{Inputs: inputsOf(t, spec), Config: "a", Wanted: keyOf(t, inputsOf(t, spec))}, fill); err != nil || key == good {
		t.Errorf("the wanted one: %s, %v", key, err)
	}
}

// A process that has passed the lock on is not named in it: it may live on.
func TestPass(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	l, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Sign(); err != nil {
		t.Fatal(err)
	}
	if _, named := s.Maker(); !named {
		t.Error("the holder is not named")
	}
	f, err := l.Pass()
	if err != nil || f != l.File() {
		t.Fatal(err)
	}
	if p, named := s.Maker(); named {
		t.Errorf("the lock names %+v, which has passed it on", p)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
