package stdio

import (
	"bytes"
	"context"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A guest that promises a huge total and sends a byte now and then does not delay
// an exit indefinitely.
func TestDrainHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &IO{phase: phaseConnected, out: newOutput(false), err: newOutput(false)}
		ended := make(chan struct{})
		go func() {
			for {
				select {
				case <-ended:
					return
				case <-time.After(stalled - time.Millisecond):
					i.out.add(1)
					i.err.add(1)
				}
			}
		}()
		start := time.Now()
		i.Drain(t.Context(), 1<<40, 1<<40)
		if took := time.Since(start); took != drainLimit {
			t.Errorf("Drain took %v, want %v", took, drainLimit)
		}
		close(ended)
	})
}

// slowly reads a FIFO to its end, a piece at a time, and sends how much it was.
func slowly(fifo *os.File, piece int, pause time.Duration) <-chan int {
	total := make(chan int, 1)
	go func() {
		n, buf := 0, make([]byte, piece)
		for {
			got, err := io.ReadFull(fifo, buf)
			if n += got; err != nil {
				total <- n
				return
			}
			time.Sleep(pause)
		}
	}()
	return total
}

// A reader that reads steadily, however slowly, gets all output before the exit is
// reported and the engine's ends are closed: also while one block takes longer than
// a reader may pause.
func TestDrainWaitsForASlowReader(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	fifo := e.open(e.paths.Stdout, os.O_RDONLY)
	i := newIO(t, e.paths)
	g := connect(t, i)
	total := slowly(fifo, 16<<10, 250*time.Millisecond) // there is a writer now
	const want = 384 << 10
	go func() { _, _ = g.stdout.Write(bytes.Repeat([]byte("x"), want)) }() // its end stays open
	i.Drain(t.Context(), want, 0)
	i.Close()
	if got := <-total; got != want {
		t.Errorf("the reader got %d bytes, want %d", got, want)
	}
}

// A reader that pauses longer than Drain waits gets the rest.
func TestAwaitWaitsForAReaderThatPaused(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	fifo := e.open(e.paths.Stdout, os.O_RDONLY)
	i := newIO(t, e.paths)
	g := connect(t, i)
	const want = 384 << 10
	go func() { _, _ = g.stdout.Write(bytes.Repeat([]byte("x"), want)) }()
	i.Drain(t.Context(), want, 0)
	total := make(chan int, 1)
	time.AfterFunc(stalled+stalled/2, func() { total <- <-slowly(fifo, 16<<10, 0) })
	i.Await(t.Context(), want, 0)
	i.Close()
	if got := <-total; got != want {
		t.Errorf("the reader got %d bytes, want %d", got, want)
	}
}

// A reader that does not come back is waited for as long as the caller wants, and a
// guest that promises more than it has is not.
func TestAwaitIsForTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &IO{phase: phaseConnected, out: newOutput(false), err: newOutput(false)}
		took := func() time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			start := time.Now()
			i.Await(ctx, 1<<40, 0)
			return time.Since(start)
		}
		if d := took(); d != stalled {
			t.Errorf("a guest that sends nothing is waited for for %v, want %v", d, stalled)
		}
		i.out.setBlocked(true)
		if d := took(); d != time.Hour {
			t.Errorf("a reader that does not read is waited for for %v, want an hour", d)
		}
		i.out.setBlocked(false)
		time.Sleep(stalled)
		for _, piece := range []int{1, 1 << 20} {
			ended := make(chan struct{})
			go func() {
				for {
					select {
					case <-ended:
						return
					case <-time.After(time.Second):
						i.out.add(piece)
					}
				}
			}()
			if d := took(); d > drainLimit {
				t.Errorf("endless output of %d bytes a second is waited for for %v", piece, d)
			}
			close(ended)
		}
	})
}
