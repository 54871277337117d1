package persist

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLockIsForOne(t *testing.T) {
	root := t.TempDir()
	unlock, err := Lock(root, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(root, 20*time.Millisecond); err == nil {
		t.Fatal("locked twice")
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := Lock(root, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := again(); err != nil {
		t.Error(err)
	}
}

// A zombie counts as dead.
func TestDeadListsSandboxesOfDeadShims(t *testing.T) {
	root := t.TempDir()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	zombie, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	self, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	owner := Owner{Address: "/run/e.sock", Namespace: "n"}
	if _, err := Create(root, owner, "other"); err != nil {
		t.Fatal(err)
	}
	for id, shim := range map[string]Process{"dead": zombie, "live": self, "beginning": {}} {
		s, err := Create(root, owner, id)
		if err == nil {
			err = s.Update(func(r *Record) { r.Shim = shim })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := zombie.Kill(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	got, err := Dead(root, owner)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"dead"}, got); diff != "" {
		t.Error(diff)
	}
}

// Abandoned reads a directory whatever its name is.
func TestAbandonedInADirectoryLikeAPattern(t *testing.T) {
	root := filepath.Join(t.TempDir(), "[b]*")
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	s, err := Create(root, Owner{}, "dead")
	if err == nil {
		err = s.Update(func(r *Record) { r.Shim.PID = gone.Process.Pid })
	}
	if err := errors.Join(err, BeginRemoval(root, "dead")); err != nil {
		t.Fatal(err)
	}
	got, err := Abandoned(root, Owner{}, 0)
	if diff := cmp.Diff([]string{"dead"}, got); diff != "" || err != nil {
		t.Errorf("error %v, %s", err, diff)
	}
	if got, err := Abandoned(filepath.Join(root, "missing"), Owner{}, 0); got != nil || err != nil {
		t.Errorf("in no directory: %v, %v", got, err)
	}
}
