package standin

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A shim that is killed just after it has forked a stand-in leaves one that no
// parent's death ends. It ends by itself, and does not spin on its broken pipe.
func TestEndsWithoutAReader(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for name, prepare := range map[string]func(*testing.T, *os.Process, *os.File){
		"before it starts": func(*testing.T, *os.Process, *os.File) {},
		"at a signal": func(t *testing.T, proc *os.Process, reports *os.File) {
			if err := awaitPlace(reports); err != nil {
				t.Error(err)
			}
			if err := proc.Signal(unix.SIGUSR1); err != nil {
				t.Error(err)
			}
			if number, err := readReport(reports); err != nil || unix.Signal(number) != unix.SIGUSR1 {
				t.Errorf("reported %d, %v", number, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			proc, reports := forkAlone(t)
			prepare(t, proc, reports)
			if err := reports.Close(); err != nil {
				t.Error(err)
			}
			_ = proc.Signal(unix.SIGUSR1) // it may have ended
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = proc.Wait()
			}()
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Error("the stand-in has not ended")
				_ = proc.Kill()
				<-ended
			}
		})
	}
}

// forkAlone starts a stand-in that nothing follows, and returns the end of its
// pipe. The caller waits for the process.
func forkAlone(t *testing.T) (*os.Process, *os.File) {
	t.Helper()
	h, err := NewHost(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	reports, report, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	proc, err := h.fork(Options{Args: shownArgs(nil), Hostname: "alone", null: null}, report)
	if err != nil {
		t.Fatal(err)
	}
	return proc, reports
}
