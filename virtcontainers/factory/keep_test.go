package factory

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/memfile"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// keeperEnv makes this program, run again, the keeper of the template with that key, in the
// store that keeperStoreEnv names.
const keeperEnv, keeperStoreEnv = "KATABOX_TEST_KEEPER", "KATABOX_TEST_KEEPER_STORE"

func beKeeper(key Key) {
	s := Store{Dir: os.Getenv(keeperStoreEnv)}
	rec, err := readRecord(filepath.Join(s.Dir, string(key)))
	if err == nil {
		err = s.Keep(context.Background(), key, rec.MemorySum, os.NewFile(3, "memory"))
	}
	if err != nil {
		panic(err)
	}
}

// startKeeper starts a keeper, and waits until it keeps the memory.
func startKeeper(t *testing.T, s Store, key Key, memory *os.File) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), keeperEnv+"="+string(key), keeperStoreEnv+"="+s.Dir)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{memory}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for s.info(key).Keeper != cmd.Process.Pid {
		if t.Context().Err() != nil {
			t.Fatal("the keeper does not keep")
		}
		time.Sleep(time.Millisecond)
	}
	return cmd
}

// made is a template, open, with its memory sealed by this process.
func made(t *testing.T) (Store, Key, *Template, *Lent) {
	t.Helper()
	in, _ := testInputs(t)
	s := Store{Dir: filepath.Join(t.TempDir(), "templates")}
	key := makeOne(t, s, in)
	tpl, err := s.Open(key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tpl.Close() })
	return s, key, tpl, lend(t, s, key, tpl)
}

// A template's memory outlives the process that has copied it, and ends with the template.
func TestKeep(t *testing.T) {
	s, key, tpl, first := made(t)
	if !first.Copied {
		t.Error("the first has not copied the memory")
	}
	memory, err := first.Dup()
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	keeper := startKeeper(t, s, key, memory)
	if err := s.Keep(t.Context(), key, first.Sum, memory); !errdefs.IsAlreadyExists(err) {
		t.Errorf("a second keeper: %v", err)
	}
	want := inode(t, memory)
	if err := errors.Join(first.Close(), memory.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Dup(); err == nil {
		t.Error("there is a duplicate of what is closed")
	}
	next := lend(t, s, key, tpl)
	if next.Copied || inode(t, next.File) != want {
		t.Error("the next got a copy")
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	if err := s.RemoveAll(); err != nil {
		t.Error(err)
	}
	var killed *exec.ExitError
	if err := keeper.Wait(); !errors.As(err, &killed) || killed.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Errorf("the keeper ended with %v", err)
	}
}

// The next one after a keeper's death copies the memory, and may have it kept again.
func TestKilledKeeper(t *testing.T) {
	s, key, tpl, first := made(t)
	keeper := startKeeper(t, s, key, first.File)
	if err := errors.Join(keeper.Process.Kill(), first.Close()); err != nil {
		t.Fatal(err)
	}
	_ = keeper.Wait() // killed
	if k := s.info(key).Keeper; k != 0 {
		t.Errorf("the dead keeper is process %d", k)
	}
	second := lend(t, s, key, tpl)
	if !second.Copied {
		t.Error("the second found memory")
	}
	startKeeper(t, s, key, second.File)
	if err := errors.Join(second.Close(), s.Remove(key)); err != nil {
		t.Error(err)
	}
}

// A keeper ends by itself once the template is of no use.
func TestKeeperEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		before, later func(t *testing.T, s Store, key Key)
		after         time.Duration
	}{
		"not used":           {after: keepLife + keepLook},
		"used again":         {later: func(t *testing.T, s Store, key Key) { age(t, s, key, 0) }, after: keepLife + keepLife/2 + keepLook},
		"used in the future": {before: func(t *testing.T, s Store, key Key) { age(t, s, key, -24*time.Hour) }},
		"long not used":      {before: func(t *testing.T, s Store, key Key) { age(t, s, key, keepLife+time.Second) }},
		"does not fit":       {later: change, after: keepLife/2 + keepLook},
		"directory erased":   {later: func(t *testing.T, s Store, _ Key) { must(t, os.RemoveAll(s.Dir)) }, after: keepLife/2 + keepLook},
		"template removed, by this process": {
			later: func(t *testing.T, s Store, key Key) { must(t, s.Remove(key)) }, after: keepLife/2 + keepLook,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, key, _, lent := made(t)
			synctest.Test(t, func(t *testing.T) {
				age(t, s, key, 0) // by the clock of the bubble
				if tt.before != nil {
					tt.before(t, s, key)
				}
				began := time.Now()
				ended := make(chan time.Duration, 1)
				go func() {
					must(t, s.Keep(t.Context(), key, lent.Sum, lent.File))
					ended <- time.Since(began)
				}()
				if tt.later != nil {
					time.Sleep(keepLife / 2)
					tt.later(t, s, key)
				}
				if after := <-ended; after > tt.after || after < tt.after-keepLook {
					t.Errorf("it ended after %v, want %v", after, tt.after)
				}
				if _, kept := keeperIn(filepath.Join(s.Dir, string(key), lendersDir)); kept {
					t.Error("its note is left")
				}
			})
		})
	}
}

// A keeper does not keep memory that has become much larger than a copy.
func TestKeeperOfGrownMemory(t *testing.T) {
	s, key, _, _ := made(t)
	memory, err := memfile.Blank("grown", keepGrowth+1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	must(t, unix.Fallocate(int(memory.Fd()), 0, 0, keepGrowth-1<<20))
	if !s.worthKeeping(key, memory) {
		t.Error("memory that has grown by less is not kept")
	}
	must(t, unix.Fallocate(int(memory.Fd()), 0, 0, keepGrowth+1<<20))
	if s.worthKeeping(key, memory) {
		t.Error("memory that has grown is kept")
	}
}

// change changes a file of which a template was made.
func change(t *testing.T, s Store, key Key) {
	t.Helper()
	rec, err := readRecord(filepath.Join(s.Dir, string(key)))
	must(t, err)
	for path := range rec.Inputs.Files {
		must(t, os.WriteFile(path, []byte("changed"), 0o600))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// What cannot be kept is refused, and nothing is noted.
func TestKeepRefuses(t *testing.T) {
	s, key, tpl, lent := made(t)
	for name, try := range map[string]func() error{
		"memory that can change": func() error { return s.Keep(t.Context(), key, lent.Sum, tpl.Memory) },
		"not a key":              func() error { return s.Keep(t.Context(), "../x", lent.Sum, lent.File) },
		"no such template":       func() error { return Store{Dir: t.TempDir()}.Keep(t.Context(), key, lent.Sum, lent.File) },
		"another template's":     func() error { return s.Keep(t.Context(), key, lent.Sum+1, lent.File) },
	} {
		if err := try(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if k := s.info(key).Keeper; k != 0 {
		t.Errorf("process %d keeps it", k)
	}
}

// A template that was made again under the same key has other memory than the one before,
// even if a pod of that still lends it.
func TestMemoryOfAnEarlierTemplate(t *testing.T) {
	s, key, _, earlier := made(t)
	must(t, s.Remove(key))
	must(t, os.MkdirAll(filepath.Join(s.Dir, string(key), lendersDir), 0o700))
	other := &Template{Memory: earlier.File, MemorySum: earlier.Sum + 1}
	must(t, sign(notePath(filepath.Join(s.Dir, string(key), lendersDir), earlier.File), earlier.File, note{Sum: earlier.Sum}))
	if f := borrow(filepath.Join(s.Dir, string(key), lendersDir), other); f != nil {
		t.Error("it gets the earlier one's memory")
		_ = f.Close()
	}
}

// Only what has the memory is killed as its keeper: a note may be older than the host's
// start.
func TestKeeperThatIsAnotherProcess(t *testing.T) {
	s, key, _, lent := made(t)
	sleep := exec.Command("sleep", "60")
	must(t, sleep.Start())
	t.Cleanup(func() { _, _ = sleep.Process.Kill(), sleep.Wait() })
	self, err := persist.Identify(sleep.Process.Pid)
	must(t, err)
	text, err := json.Marshal(note{Process: self, FD: 0, Dev: 1, Ino: 1, Sum: lent.Sum, Keeper: true})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(s.Dir, string(key), lendersDir, "1-0"), text, 0o600))
	if k := s.info(key).Keeper; k != 0 {
		t.Errorf("process %d is taken for the keeper", k)
	}
	must(t, s.Remove(key))
	if !self.Alive() {
		t.Error("it was killed")
	}
}

// The keeper of a template whose removal was killed halfway ends with what is left.
func TestKeeperOfAHalfRemovedTemplate(t *testing.T) {
	s, key, _, lent := made(t)
	keeper := startKeeper(t, s, key, lent.File)
	must(t, os.Rename(filepath.Join(s.Dir, string(key)), filepath.Join(s.Dir, makingPrefix+"x")))
	must(t, s.RemoveAll())
	if err := keeper.Wait(); err == nil {
		t.Error("it has ended by itself")
	}
}
