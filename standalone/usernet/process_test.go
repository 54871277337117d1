package usernet

import (
	"errors"
	"os"
	"os/exec"
	"testing"
)

// A network's program whose log is on a full disk runs on: its end would be the
// network's.
func TestLogOnAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	// More than a pipe holds.
	cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789 >&2; i=$((i+1)); done; exit 7")
	cmd.Stderr = logTo(full)
	exit := new(exec.ExitError)
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("the program ended: %v, want exit status 7", err)
	}
}
