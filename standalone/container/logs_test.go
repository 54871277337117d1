package container

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// counting receives numbered lines in order.
type counting struct {
	t    *testing.T
	seen atomic.Int64
}

func (c *counting) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		want := fmt.Sprintln(c.seen.Load() + 1)
		if line != want {
			c.t.Errorf("line %q, want %q", line, want)
			return 0, io.ErrShortWrite
		}
		c.seen.Add(1)
	}
	return len(p), nil
}

// A reader that follows a log misses nothing of a file that is replaced by the next
// one while it reads.
func TestFollowAcrossFiles(t *testing.T) {
	_, _, dir := newContainer(t, "c")
	l, err := openLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	const lines, ahead = 4_000, 10
	l.max = 2 * ahead * 50 // so that the reader is never two files behind
	out := &counting{t: t}
	r := &logReader{dir: dir, out: out, err: io.Discard}
	defer r.close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := int64(1); n <= lines && !t.Failed(); n++ {
			for n > out.seen.Load()+ahead && !t.Failed() {
				runtime.Gosched()
			}
			l.write("stdout", []byte(fmt.Sprintln(n)))
		}
	}()
	for ended := false; !t.Failed(); {
		if err := r.readAll(); err != nil || ended {
			if err != nil {
				t.Error(err)
			}
			break
		}
		select {
		case <-done:
			ended = true
		default:
		}
	}
	<-done
	if got := out.seen.Load(); got != lines {
		t.Errorf("%d lines, want %d", got, lines)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}
