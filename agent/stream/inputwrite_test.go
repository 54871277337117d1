package stream

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// kinds are the files that an input is written to. What a process does not read
// fills either: a terminal holds less than a pipe and takes a part of a block.
var kinds = map[string]func(t *testing.T) (s *Stdio, process *os.File){
	"pipe": func(t *testing.T) (*Stdio, *os.File) {
		t.Helper()
		s := newStdio(t, Request{Stdin: true})
		return s, s.Child().Stdin
	},
	"terminal": func(t *testing.T) (*Stdio, *os.File) {
		t.Helper()
		s := newStdio(t, Request{Stdin: true, Terminal: true})
		master, slave := openPty(t)
		if err := s.SetConsole(master); err != nil {
			t.Fatal(err)
		}
		return s, slave
	},
}

// letters is a pattern without bytes that a terminal acts upon.
func letters(size int) []byte {
	data := pattern(size)
	for i, b := range data {
		data[i] = 'A' + b%32
	}
	return data
}

// writesItself reports whether the reader is writing to the process.
func (in *input) writesItself() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.direct
}

// queued returns how many bytes wait for the writer.
func (in *input) queued() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.queue)
}

// overfill sends a process that does not read as much as its file and the reader
// take, of which the first is not a whole block, and waits until the reader's own
// write blocks.
func overfill(t *testing.T, s *Stdio, in io.Writer, data []byte) {
	t.Helper()
	_, _ = in.Write(data[:10<<10])
	waitUntil(t, "the first bytes", func() bool { return s.stdin.has(10 << 10) })
	_, _ = in.Write(data[10<<10:])
	before := uint64(0)
	waitUntil(t, "a write that blocks", func() bool {
		s.stdin.mu.Lock()
		received := s.stdin.received
		s.stdin.mu.Unlock()
		same := received == before
		before = received
		time.Sleep(20 * time.Millisecond)
		return same && s.stdin.writesItself()
	})
	if n := s.stdin.queued(); n > 0 {
		t.Fatalf("%d bytes are queued without Park", n)
	}
}

// readsAs expects data to be the next that the process reads.
func readsAs(t *testing.T, process io.Reader, data []byte) {
	t.Helper()
	got := make([]byte, len(data))
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(process, got)
		read <- err
	}()
	select {
	case err := <-read:
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("not the %d bytes that were sent: %v", len(data), err)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("the process gets less than %d bytes", len(data))
	}
}

// Park interrupts the reader's own write in the middle of a block: the process gets
// the rest once, before what another connection brings, and then the reader writes
// itself again.
func TestParkInterruptsTheReader(t *testing.T) {
	for name, start := range kinds {
		t.Run(name, func(t *testing.T) {
			s, process := start(t)
			data := letters(200 << 10)
			overfill(t, s, attach(t, s, stdin), data[:100<<10])
			park(t, s, 100<<10)
			if s.stdin.writesItself() {
				t.Error("the reader still writes")
			}
			if held := s.stdin.held(); held == 0 {
				t.Error("nothing is kept")
			}
			in := attach(t, s, stdin)
			readsAs(t, process, data[:100<<10])
			waitUntil(t, "an empty queue", func() bool { return s.stdin.held() == 0 })
			overfill(t, s, in, data[100<<10:])
			readsAs(t, process, data[100<<10:])
		})
	}
}

// A Park that fails has interrupted the reader, whose block is not lost.
func TestRefusedParkInterruptsTheReader(t *testing.T) {
	for name, start := range kinds {
		t.Run(name, func(t *testing.T) {
			s, process := start(t)
			in, data := attach(t, s, stdin), letters(100<<10)
			overfill(t, s, in, data[:90<<10])
			failPark(t, s, 100<<10)
			_, _ = in.Write(data[90<<10:])
			readsAs(t, process, data)
		})
	}
}

// A connection that another replaces does not wait for the process, and what it
// brought comes first.
func TestReplaceInterruptsTheReader(t *testing.T) {
	for name, start := range kinds {
		t.Run(name, func(t *testing.T) {
			s, process := start(t)
			data := letters(110 << 10)
			overfill(t, s, attach(t, s, stdin), data[:100<<10])
			refusePark(t, s)
			in, received := rebind(t, s, stdin)
			if received != 100<<10 {
				t.Errorf("%d bytes were received of %d", received, 100<<10)
			}
			_, _ = in.Write(data[100<<10:])
			readsAs(t, process, data)
		})
	}
}

// Close ends a reader that writes, and a writer that has a queue.
func TestCloseInput(t *testing.T) {
	for name, start := range kinds {
		for _, parked := range []bool{false, true} {
			s, _ := start(t)
			overfill(t, s, attach(t, s, stdin), letters(100<<10))
			if parked {
				park(t, s, 100<<10)
			}
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				s.Close()
			}()
			select {
			case <-closed:
			case <-time.After(10 * time.Second):
				t.Fatalf("%s, parked %t: Close hangs", name, parked)
			}
		}
	}
}

// The host learns that the process reads no more while the reader writes.
func TestProcessClosesItsInput(t *testing.T) {
	s := newStdio(t, Request{Stdin: true})
	in := attach(t, s, stdin)
	overfill(t, s, in, letters(100<<10))
	_ = s.Child().Stdin.Close()
	if _, err := in.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection lives: %v", err)
	}
	waitUntil(t, "the end", func() bool { return s.stdin.is(ended) })
}

// CloseStdin does not end an input before what the reader is writing and what is in
// the connection.
func TestCloseStdinWhileTheReaderWrites(t *testing.T) {
	s := newStdio(t, Request{Stdin: true})
	data := letters(150 << 10)
	overfill(t, s, attach(t, s, stdin), data)
	s.CloseStdin()
	time.Sleep(2 * lastInput) // Its wait must not begin before the process reads.
	if got := readAll(t, s.Child().Stdin); got != string(data) {
		t.Errorf("%d bytes, or others, of %d", len(got), len(data))
	}
}

// The reader writes itself only where it may: nothing may overtake the queue, and a
// process that does not read may not hold up Park.
func TestWhoWritesInput(t *testing.T) {
	file := polledPipe{os.Stdin} // It is not written to.
	for name, test := range map[string]struct {
		in   *input
		data string
		want bool
	}{
		"free":          {&input{binding: binding{state: bound}, file: file}, "x", true},
		"no bytes":      {&input{binding: binding{state: bound}, file: file}, "", false},
		"no file yet":   {&input{binding: binding{state: bound}}, "x", false},
		"parking":       {&input{binding: binding{state: parking}, file: file}, "x", false},
		"queue":         {&input{binding: binding{state: bound}, file: file, queue: []byte("w")}, "x", false},
		"writer writes": {&input{binding: binding{state: bound}, file: file, hand: 1}, "x", false},
	} {
		in := test.in
		in.changed.L = &in.mu
		held := in.held()
		if got := in.took([]byte(test.data)); got != test.want || in.direct != test.want {
			t.Errorf("%s: the reader writes: %t, want %t", name, got, test.want)
		}
		if in.held()-held != len(test.data) || in.received != uint64(len(test.data)) {
			t.Errorf("%s: %d bytes more are held, %d were received", name, in.held()-held, in.received)
		}
	}
}

// Whenever Park comes, no byte of a terminal's input is lost, repeated or moved.
func TestParkTerminalAtAnyTime(t *testing.T) {
	s, process := kinds["terminal"](t)
	data := letters(256 << 10)
	read := make(chan []byte, 1)
	go func() {
		got := make([]byte, len(data))
		n, _ := io.ReadFull(process, got)
		read <- got[:n]
	}()
	for sent := 0; sent < len(data); {
		n := min(len(data)-sent, 1+sent%(20<<10))
		in := attach(t, s, stdin)
		if _, err := in.Write(data[sent : sent+n]); err != nil {
			t.Fatal(err)
		}
		sent += n
		park(t, s, sent)
	}
	if got := <-read; !bytes.Equal(got, data) {
		t.Errorf("%d bytes, or others, of %d", len(got), len(data))
	}
}
