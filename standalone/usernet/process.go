package usernet

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// endTimeout is how long a program may take to end before it is killed.
const endTimeout = 3 * time.Second

// maxSaid bounds how much of a program's output is kept.
const maxSaid = 4 << 10

// maxLog bounds a program's log, in bytes: the program runs as long as the container, and
// what the container sends can make it log.
const maxLog = 1 << 20

// logFull is the last line of a log that has reached its bound.
const logFull = "\nkata-runtime: the log is full, the rest is dropped\n"

// launch starts a program that ends with this process, and with n.stop. prepare
// runs before, on the thread that starts it, which has its own mounts; the
// program inherits them.
func (n *Net) launch(name string, args []string, files []*os.File, log string, prepare func() error) error {
	path, err := exec.LookPath(name)
	if err != nil {
		close(n.done)
		return fmt.Errorf("%w: %w", err, errdefs.ErrNotFound)
	}
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		close(n.done)
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop, n.log = stop, log
	cmd := exec.CommandContext(ctx, path, args...)
	said := logTo(out)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = said, said, files
	// A separate process group: Ctrl-C is for the container, not for the program.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = endTimeout
	started := make(chan error)
	ownthread.Go(func() {
		defer close(n.done)
		defer stop()
		defer out.Close()
		// The program is killed when the thread that started it ends
		// (PR_SET_PDEATHSIG(2)), so the thread waits.
		err := ownMounts()
		if err == nil {
			err = prepare()
		}
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			n.err = cmd.Wait()
		}
	})
	return <-started
}

// logTo returns a writer to a program's log, which is empty. It drops what the log does
// not take, as on a full disk, and what is above maxLog. The program writes to it by a
// pipe, because an AppArmor profile of the program may not allow the file; after an error
// the pipe would be closed, and the program's next write end it.
func logTo(out *os.File) io.Writer {
	return &lossyWriter{to: out, room: maxLog - len(logFull)}
}

type lossyWriter struct {
	to   *os.File
	room int // negative once it was exceeded
}

// Write implements io.Writer. It never fails.
func (w *lossyWriter) Write(p []byte) (int, error) {
	if w.room < 0 {
		return len(p), nil
	}
	_, _ = w.to.Write(p[:min(len(p), w.room)])
	if w.room -= len(p); w.room < 0 {
		_, _ = w.to.WriteString(logFull)
	}
	return len(p), nil
}

// ownMounts gives the thread its own mount namespace.
func ownMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	return nil
}

// ended returns the error for a program that ended before its time.
func (n *Net) ended(log string) error {
	said := ""
	if f, err := os.Open(log); err == nil {
		data, _ := io.ReadAll(io.LimitReader(f, maxSaid))
		said = strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", "; ") // an error is one line
		f.Close()
	}
	if n.err != nil {
		return fmt.Errorf("it ended: %s: %w", said, n.err)
	}
	return fmt.Errorf("it ended: %s", said)
}
