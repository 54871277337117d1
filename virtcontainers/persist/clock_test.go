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

// What was made before the clock was set back is found as before: it must not stay until
// the clock is where it was.
func TestLeftoversOfALaterTime(t *testing.T) {
	root := t.TempDir()
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	s, err := Create(root, Owner{}, "dead")
	if err == nil {
		err = s.Update(func(r *Record) { r.Shim.PID = gone.Process.Pid })
	}
	if err := errors.Join(err, BeginRemoval(root, "dead"), os.Chtimes(filepath.Join(root, "dead", removalFile), later, later)); err != nil {
		t.Fatal(err)
	}
	got, err := Abandoned(root, Owner{}, time.Minute)
	if diff := cmp.Diff([]string{"dead"}, got); diff != "" || err != nil {
		t.Errorf("error %v, %s", err, diff)
	}
	unfinished := filepath.Join(root, "unfinished")
	if err := errors.Join(os.Mkdir(unfinished, 0o700), os.Chtimes(unfinished, later, later)); err != nil {
		t.Fatal(err)
	}
	if err := RemoveUnfinished(root, time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(unfinished); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory without a record: %v", err)
	}
}
