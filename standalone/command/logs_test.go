package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/standalone/container"
	"github.com/katabox/katabox/standalone/store"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// logsEnv has the test program run kata-runtime logs with these arguments.
const logsEnv = "KATABOX_TEST_LOGS"

// TestLogsProcess is the other process of TestLogsAreInterrupted.
func TestLogsProcess(t *testing.T) {
	args := os.Getenv(logsEnv)
	if args == "" {
		t.Skip("this is the process of another test")
	}
	if err := Failed(logsCommand().Run(t.Context(), strings.Fields(args))); err != nil {
		t.Fatal(err)
	}
}

// running makes the record and the log of a container that this process runs.
func running(t *testing.T, name, output string) {
	t.Helper()
	root, bin := t.TempDir(), t.TempDir()
	t.Setenv("KATABOX_STORE", root)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	self, err := persist.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := s.MakeContainer(name, store.Image{Name: "image", Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.Symlink("/proc/self/exe", filepath.Join(bin, client.ShimName)),
		store.WriteJSON(filepath.Join(dir, "record.json"), container.Record{Name: name, Engine: self}),
		os.WriteFile(filepath.Join(dir, "output.log"), []byte(output), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

// lines are more than a pipe holds.
const lines = 100_000

// A signal ends logs at once and without a word, as it ends any reader: while it prints
// much, and while it waits for more.
func TestLogsAreInterrupted(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can run containers")
	}
	heedInterrupts()
	running(t, "c", strings.Repeat("2026-01-02T03:04:05Z stdout F line\n", lines))
	for _, test := range []interruption{
		{args: "logs c", by: unix.SIGINT},
		{args: "logs -f c", by: unix.SIGTERM},
		{args: "logs -f c", by: unix.SIGINT, read: true},
	} {
		test.check(t)
	}
}

// interruption is a signal that logs gets when it has begun to print, or when it has
// printed everything.
type interruption struct {
	args string
	by   syscall.Signal
	read bool // all of its output is read
}

func (i interruption) check(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestLogsProcess$")
	cmd.Env = append(os.Environ(), logsEnv+"="+i.args)
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wanted := int64(1)
	if i.read {
		wanted = int64(lines * len("line\n"))
	}
	if _, err := io.CopyN(io.Discard, out, wanted); err != nil {
		t.Errorf("%s: %v", i.args, err)
	}
	if err := cmd.Process.Signal(i.by); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // the status has the reason
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != i.by || said.Len() != 0 {
		t.Errorf("%+v: it ended with %v and said %q", i, cmd.ProcessState, said.String())
	}
}
