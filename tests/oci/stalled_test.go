package oci

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// The reader of a container's output reads nothing more, and SIGKILL ends it all the
// same.
func TestStalledReader(t *testing.T) { sameAsRunc(t, playStalled) }

// playStalled kills "yes", whose output is not read, and notes how its pid ends.
func playStalled(t *testing.T, program string) (rows []string) {
	t.Helper()
	r := newRuntime(t, program)
	pidFile := filepath.Join(t.TempDir(), "pid")
	bundle := r.bundle("yes; true", nil)
	outR, outW := pipe(t)
	errs, null := create(t), open(t, os.DevNull)
	if code := r.command([3]*os.File{null, outW, errs}, "create", "--bundle", bundle, "--pid-file", pidFile, "p1"); code != 0 {
		t.Fatalf("create: %d %s", code, content(t, errs))
	}
	_ = outW.Close()
	for _, args := range [][]string{{"start", "p1"}, {"kill", "p1", "KILL"}, {"delete", "--force", "p1"}} {
		res := r.call(args...)
		rows = append(rows, fmt.Sprintf("%s: %d %q", args[0], res.code, res.out))
		switch args[0] {
		case "start":
			if _, err := io.ReadFull(outR, make([]byte, 2)); err != nil {
				t.Error(err)
			}
		case "kill":
			rows = append(rows, fmt.Sprintf("exit: %d", reap(t, r.pid(pidFile))))
		}
	}
	return rows
}
