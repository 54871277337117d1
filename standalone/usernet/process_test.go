package usernet

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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

// A network's program that logs without end fills no disk, and runs on.
func TestLogIsBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command("sh", "-c", "echo begin; head -c 3M /dev/zero; exit 7")
	cmd.Stdout = logTo(out)
	exit := new(exec.ExitError)
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("the program ended: %v, want exit status 7", err)
	}
	data, err := os.ReadFile(name)
	if err != nil || len(data) != maxLog || !bytes.HasPrefix(data, []byte("begin\n")) || !bytes.HasSuffix(data, []byte(logFull)) {
		t.Errorf("%d bytes of log, want %d; %v", len(data), maxLog, err)
	}
}
