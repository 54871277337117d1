package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
)

const (
	// loggerStart is how long a logger may take to be ready, loggerEnd how long
	// it may take to end after the output has ended, and again after SIGTERM.
	loggerStart = 10 * time.Second
	loggerEnd   = 12 * time.Second
	// LoggersEnd is how long EndLoggers takes at most: SIGKILL has come then.
	LoggersEnd = 2*loggerEnd + time.Second
)

// logger is a program that receives a process's output, by containerd's protocol
// for binary:// ends: it reads stdout from descriptor 3 and stderr from 4, closes
// 5 when it is ready, and has the container's id and namespace, and nothing else, in
// its environment. With binary-v2:// it writes a byte to 5 before, which a program
// that died does not.
type logger struct {
	cmd            *exec.Cmd
	stdout, stderr *os.File
	closing        sync.Once
	// patience is loggerEnd, but in tests.
	patience time.Duration
	// ended is closed when the program has ended.
	ended chan struct{}
}

// loggers are those of this process that have not ended: each *logger is a key.
var loggers sync.Map

// LoggersRun reports whether a logger has not ended.
func LoggersRun() bool {
	run := false
	loggers.Range(func(any, any) bool {
		run = true
		return false
	})
	return run
}

// EndLoggers ends the output of all loggers and waits until they have ended, by a
// signal if need be.
func EndLoggers(ctx context.Context) (err error) {
	loggers.Range(func(key, _ any) bool {
		_ = key.(*logger).Close()
		return true
	})
	loggers.Range(func(key, _ any) bool {
		l := key.(*logger)
		select {
		case <-l.ended:
		case <-ctx.Done():
			err = fmt.Errorf("logger %s has not ended: %w", l.cmd.Path, context.Cause(ctx))
		}
		return err == nil
	})
	return err
}

// startLogger starts the program that the URI names, with arguments from the
// query. It returns when the program is ready.
func startLogger(u *url.URL, namespace, containerID string) (*logger, error) {
	if !filepath.IsAbs(u.Path) {
		return nil, fmt.Errorf("start logger %q: want an absolute path: %w", u, errdefs.ErrInvalidArgument)
	}
	l := &logger{cmd: exec.Command(u.Path, loggerArgs(u.Query())...), patience: loggerEnd, ended: make(chan struct{})}
	// Nothing else, as from runc's shim: the shim's environment is the engine's.
	l.cmd.Env = []string{"CONTAINER_ID=" + containerID, "CONTAINER_NAMESPACE=" + namespace}
	ready, err := l.start()
	if err != nil {
		return nil, fmt.Errorf("start logger: %w", err)
	}
	loggers.Store(l, nil)
	defer ready.Close()
	if err := awaitReady(ready, u.Scheme == schemeBinaryV2); err != nil {
		return nil, errors.Join(fmt.Errorf("start logger %s: %w", u.Path, err), l.Close())
	}
	return l, nil
}

// loggerArgs flattens the query to each key, then its value, which may be empty, as
// runc's shim does. It sorts them, because a query has no order.
func loggerArgs(query url.Values) []string {
	var args []string
	keys := make([]string, 0, len(query))
	for k := range query {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		args = append(args, k, query.Get(k))
	}
	return args
}

// start makes the three pipes and runs the program. It returns the read end of
// the ready pipe.
func (l *logger) start() (*os.File, error) {
	var made, theirs []*os.File
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			made = append(made, r, w)
		}
		return r, w, err
	}
	outR, outW, err1 := pipe()
	errR, errW, err2 := pipe()
	readyR, readyW, err3 := pipe()
	err := errors.Join(err1, err2, err3)
	if err == nil {
		theirs = []*os.File{outR, errR, readyW}
		l.cmd.ExtraFiles = theirs
		err = l.cmd.Start()
	}
	if err != nil {
		for _, f := range made {
			_ = f.Close()
		}
		return nil, err
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	l.stdout, l.stderr = outW, errW
	return readyR, nil
}

// awaitReady waits until the program has closed its end or written a byte, which
// it may have to. A program that died has closed it too; its pipes then fail.
func awaitReady(ready *os.File, wantByte bool) error {
	if err := ready.SetReadDeadline(time.Now().Add(loggerStart)); err != nil {
		return err
	}
	_, err := ready.Read(make([]byte, 1))
	if errors.Is(err, io.EOF) && wantByte {
		return errors.New("it ended, or closed descriptor 5, without a byte that says that it is ready")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("it was not ready within %v: %w", loggerStart, err)
	}
	return nil
}

// Close ends the output. The program has some time to write its input; another
// goroutine waits for it.
func (l *logger) Close() (err error) {
	l.closing.Do(func() {
		go l.reap()
		err = errors.Join(l.stdout.Close(), l.stderr.Close())
	})
	return err
}

// awaitEnd waits until a program whose output was closed has ended.
func (l *logger) awaitEnd(ctx context.Context) {
	select {
	case <-l.ended:
	case <-ctx.Done():
	}
}

func (l *logger) reap() {
	go func() {
		_ = l.cmd.Wait()
		loggers.Delete(l)
		close(l.ended)
	}()
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case <-l.ended:
			return
		case <-time.After(l.patience):
			_ = l.cmd.Process.Signal(sig)
		}
	}
}
