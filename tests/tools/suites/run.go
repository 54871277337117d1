package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how long a command may take to exit after it was told to, and how
// much longer than its timeout a suite may run: the test program ends itself
// first and says what hung.
const grace = time.Minute

// runner runs commands of suites in the checkout's root.
type runner struct {
	root string
	// results is where logs go.
	results string
	screen  *screen
}

// run runs one command of a suite. The log is called name.log. run itself never
// fails: the outcome's error says why a command did not run.
func (r *runner) run(ctx context.Context, s suite, args []string, name string) outcome {
	log, err := os.Create(filepath.Join(r.results, strings.ReplaceAll(name, "/", "-")+".log"))
	if err != nil {
		return outcome{tally: newTally(io.Discard), err: fmt.Errorf("make log: %w", err)}
	}
	defer func() { _ = log.Close() }() // it is a help, not a result
	o := outcome{tally: newTally(&lockedWriter{w: log})}
	o.tally.onBegin = func(t *result) { r.screen.beginTest(s, t) }
	o.tally.onTest = func(t *result) { r.screen.test(s, t) }
	o.tally.onPackage = func(p *pkgResult) { r.screen.pkg(s, p) }
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout+grace, fmt.Errorf("it took longer than %v", s.timeout))
	defer cancel()
	tail := &tailWriter{log: o.tally.log}
	o.err = r.command(ctx, s, args, name, o.tally, tail)
	if o.err != nil && ctx.Err() != nil {
		o.err = errors.Join(context.Cause(ctx), o.err)
	}
	o.stderr = tail.kept
	return o
}

// command runs args in their own process group, so that the end of ctx ends all
// of them, and feeds the tally.
func (r *runner) command(ctx context.Context, s suite, args []string, name string, t *tally, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = r.root, append(append(os.Environ(), envCommand+"="+r.word(name)), s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = grace / 2
	cmd.Stderr = stderr
	out, feed := io.Pipe()
	cmd.Stdout = feed
	read := make(chan error, 1)
	go func() {
		err := t.read(out)
		_ = out.CloseWithError(err) // a writer must not wait for a reader that is gone
		read <- err
	}()
	err := cmd.Run()
	if cmd.Process != nil {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // ESRCH: nothing is left, as it should be
	}
	_ = feed.Close()
	err = errors.Join(err, <-read)
	if killed := killLeftovers(r.word(name)); killed > 0 {
		t.line(fmt.Appendf(nil, "suites: killed %d processes that %s left\n", killed, name))
	}
	return err
}

// word identifies a command's descendants, among those of other commands and
// other runners.
func (r *runner) word(name string) string { return fmt.Sprintf("%d-%s", os.Getpid(), name) }

// lockedWriter lets two streams share a log.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// maxTail bounds what is kept of a command's stderr, in bytes.
const maxTail = 64 << 10

// tailWriter copies to a log and keeps the end of what was written.
type tailWriter struct {
	log  io.Writer
	kept []byte
}

func (t *tailWriter) Write(p []byte) (int, error) {
	_, _ = t.log.Write(p) // the log is a help, not a result
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - maxTail; over > 0 {
		t.kept = bytes.Clone(t.kept[over:])
	}
	return len(p), nil
}
