package maker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/factory"
)

// madeTemplate makes a template that is of no file, and lends its memory.
func madeTemplate(t *testing.T) (factory.Store, factory.Key, *factory.Lent) {
	t.Helper()
	host, err := factory.ThisHost()
	if err != nil {
		t.Fatal(err)
	}
	s := factory.Store{Dir: filepath.Join(t.TempDir(), "store")}
	key, err := s.Make(t.Context(), factory.Job{Inputs: factory.Inputs{Host: host}}, func(_ context.Context, p factory.Place) error {
		return errors.Join(os.WriteFile(filepath.Join(p.Dir, factory.MemoryFile), []byte("memory"), 0o600),
			os.WriteFile(filepath.Join(p.Dir, factory.StateFile), []byte("state"), 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
	template, err := s.Open(key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = template.Close() })
	lent, err := s.Lend(key, template)
	if err == nil {
		err = lent.Filled()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, key, lent
}

// keeperOf waits until a template has a keeper, or has none.
func keeperOf(t *testing.T, s factory.Store, there bool) int {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		list, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 0 && (list[0].Keeper != 0) == there {
			return list[0].Keeper
		}
		if time.Now().After(deadline) {
			t.Fatalf("keeper there: %v; templates %+v", !there, list)
		}
	}
}

// A keeper has its own session and the memory, inherits nothing else from its shim, and
// leaves when it is asked to.
func TestStartKeeper(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a keeper's OOM score needs root where this process's is higher")
	}
	s, key, lent := madeTemplate(t)
	home, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(alien)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := StartKeeper(virtcontainers.KeepOrder{Store: s, Key: key, Sum: lent.Sum, Memory: lent.File, Home: home}); err != nil {
		t.Fatal(err)
	}
	keeper := keeperOf(t, s, true)
	if err := lent.Close(); err != nil {
		t.Error(err)
	}
	sid, err := unix.Getsid(keeper)
	if err != nil || sid != keeper {
		t.Errorf("its session is %d, %v, want %d", sid, err, keeper)
	}
	for name, want := range map[string]string{"comm": keeperName, "oom_score_adj": oomScore, "cgroup": strings.TrimSpace(string(home))} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", keeper, name))
		if got := strings.TrimSpace(string(text)); got != want || err != nil {
			t.Errorf("its %s is %q, %v, want %q", name, got, err, want)
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", keeper))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", keeper, f.Name())); to == alien {
			t.Errorf("it has %s open, %v", alien, err)
		}
	}
	if err := unix.Kill(keeper, unix.SIGTERM); err != nil {
		t.Error(err)
	}
	keeperOf(t, s, false)
	if notes, err := os.ReadDir(filepath.Join(s.Dir, string(key), "lenders")); len(notes) != 0 || err != nil {
		t.Errorf("notes %v, %v", notes, err)
	}
}

// A keeper is started by shims alone.
func TestKeeperByHand(t *testing.T) {
	for _, args := range [][]string{nil, {"/store", "key", "x"}, {"/store", "key", "1"}} {
		if err := Keep(t.Context(), args); !errors.Is(err, errNotByHand) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// A keeper that fails is not silent; one that has nothing to keep has not failed.
func TestFailedKeeper(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a keeper's OOM score needs root where this process's is higher")
	}
	s, key, lent := madeTemplate(t)
	home, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	logged := test.NewGlobal()
	defer logged.Reset()
	order := virtcontainers.KeepOrder{Store: s, Key: key, Sum: lent.Sum + 1, Memory: lent.File, Home: home} // was made again
	bad := order
	bad.Key = "none"
	for _, o := range []virtcontainers.KeepOrder{order, bad} {
		if err := StartKeeper(o); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); len(logged.AllEntries()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is logged")
		}
	}
	if all := logged.AllEntries(); len(all) != 1 || all[0].Data["template"] != factory.Key("none") {
		t.Errorf("logged %+v", all)
	}
	if err := lent.Close(); err != nil {
		t.Error(err)
	}
}
