package container

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
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

// holding keeps its first writer waiting until it is released.
type holding struct {
	bytes.Buffer
	held, release chan struct{}
	once          sync.Once
}

func (h *holding) Write(p []byte) (int, error) {
	h.once.Do(func() {
		close(h.held)
		<-h.release
	})
	return h.Buffer.Write(p)
}

// A reader that does not follow a log writes both of its files, also if they are
// replaced while its output is held, as by a pager.
func TestLogsOfReplacedFiles(t *testing.T) {
	m, _, dir := newContainer(t, "c")
	l, err := openLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.max = 1 // each line replaces the file of the line before
	write := func(lines ...string) {
		for _, line := range lines {
			l.write("stdout", []byte(line+"\n"))
		}
	}
	write("1", "2")
	out := &holding{held: make(chan struct{}), release: make(chan struct{})}
	read := make(chan error)
	go func() { read <- m.Logs(t.Context(), "c", false, out, io.Discard) }()
	<-out.held
	write("3", "4", "5")
	close(out.release)
	if err := <-read; err != nil || out.String() != "1\n2\n" {
		t.Errorf("%q, %v, want the two lines that were there", out.String(), err)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}

// numbers receives numbered lines.
type numbers struct{ list []int64 }

func (n *numbers) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		number, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			return 0, err
		}
		n.list = append(n.list, number)
	}
	return len(p), nil
}

// A reader finds the last two files also if they are replaced while it opens them.
func TestLogsOpenedDuringReplacement(t *testing.T) {
	_, _, dir := newContainer(t, "c")
	l, err := openLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.max = 1 // each line replaces the file of the line before
	var written atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := int64(1); ; n++ {
			select {
			case <-stop:
				return
			default:
				l.write("stdout", []byte(fmt.Sprintln(n)))
				written.Store(n)
			}
		}
	}()
	for range 3000 {
		before, out := written.Load(), &numbers{}
		r := &logReader{dir: dir, out: out, err: io.Discard}
		err := r.readOnce()
		r.close()
		if err != nil {
			t.Error(err)
		}
		list := out.list
		if before == 0 {
			continue
		}
		if len(list) == 0 || list[len(list)-1] < before || len(list) == 2 && list[1] != list[0]+1 {
			t.Fatalf("lines %d, with %d written before", list, before)
		}
	}
	close(stop)
	<-done
	if err := l.close(); err != nil {
		t.Error(err)
	}
}
