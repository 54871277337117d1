package stdio

import (
	"io"
	"os"
	"testing"
	"time"
)

// A process ends while the engine is down: the engine that comes back still reads
// what the process printed last, and then the end.
func TestLastOutputWaitsForAReader(t *testing.T) {
	e := newEngine(t)
	stdout := e.open(e.paths.Stdout, os.O_RDONLY)
	i := newIO(t, e.paths)
	g := connect(t, i)
	stdout.Close()
	put(t, g.stdout, "last")
	g.stdout.Close()
	g.stderr.Close()
	i.Drain(t.Context(), 4, 0)
	i.copying.Wait()
	time.Sleep(3 * unreadPause) // the ends would be closed by now
	again := e.open(e.paths.Stdout, os.O_RDONLY)
	_ = again.SetReadDeadline(time.Now().Add(20 * time.Second))
	if got, err := io.ReadAll(again); err != nil || string(got) != "last" {
		t.Errorf("the next reader got %q, %v", got, err)
	}
}

// No reader comes back: Close, which is the process's deletion, releases the output.
func TestUnreadOutputEndsWithClose(t *testing.T) {
	e := newEngine(t)
	i := newIO(t, e.paths)
	g := connect(t, i)
	put(t, g.stdout, "last")
	g.stdout.Close()
	g.stderr.Close()
	i.Drain(t.Context(), 4, 0)
	i.Close()
	again := e.open(e.paths.Stdout, os.O_RDONLY)
	if got, err := io.ReadAll(again); err != nil || len(got) != 0 {
		t.Errorf("after the close: %q, %v", got, err)
	}
}
