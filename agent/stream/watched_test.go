package stream

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newWatched(t *testing.T) (w *watched, process *os.File) {
	t.Helper()
	w, process, err := pipeOut(true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = w.Close(), process.Close() })
	return w, process
}

// readWatched reads once, and reports which errors try and read had.
func readWatched(w *watched) (text string, tryErr, err error) {
	block := make([]byte, 100)
	err = w.do(func(fd int) bool {
		var n int
		n, tryErr = readOnce(fd, block)
		text = string(block[:n])
		return !errors.Is(tryErr, unix.EAGAIN)
	})
	return text, tryErr, err
}

// hasEvent reports whether the set would wake Go's poller.
func (w *watched) hasEvent(t *testing.T) bool {
	t.Helper()
	raw, err := w.set.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	_ = raw.Control(func(set uintptr) { n, err = unix.Poll([]unix.PollFd{{Fd: int32(set), Events: unix.POLLIN}}, 0) })
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

func say(t *testing.T, process io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(process, text); err != nil {
		t.Fatal(err)
	}
}

// What a process writes while no read waits for it wakes nothing.
func TestWatchIsQuiet(t *testing.T) {
	w, process := newWatched(t)
	for range 3 {
		waited := make(chan string)
		go func() {
			text, _, _ := readWatched(w)
			waited <- text
		}()
		time.Sleep(20 * time.Millisecond) // mostly, read waits now
		say(t, process, "one")
		if got := <-waited; got != "one" {
			t.Fatalf("read %q", got)
		}
		for _, text := range []string{"two", "three"} {
			if say(t, process, text); w.hasEvent(t) {
				t.Error("the pipe has an event, and no read waits for it")
			}
		}
		if got, _, err := readWatched(w); got != "twothree" || err != nil {
			t.Fatalf("read %q, %v", got, err)
		}
	}
}

func TestWatchedEnds(t *testing.T) {
	w, process := newWatched(t)
	w.wake()
	if _, _, err := readWatched(w); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after wake: %v", err)
	}
	w.letWait()
	time.AfterFunc(20*time.Millisecond, w.wake)
	if _, _, err := readWatched(w); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("woken while it waits: %v", err)
	}
	w.letWait()
	// The wait that was given up has left the watch armed.
	if say(t, process, "text"); !w.hasEvent(t) {
		t.Error("a wait that was given up gets no event")
	}
	if got, _, err := readWatched(w); got != "text" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	time.AfterFunc(20*time.Millisecond, func() { _ = process.Close() })
	if _, end, err := readWatched(w); !errors.Is(end, io.EOF) || err != nil {
		t.Errorf("at the end: %v, %v", end, err)
	}
}

// Closing either file ends a read, as the streams' close does with both.
func TestWatchedCloses(t *testing.T) {
	w, _ := newWatched(t)
	time.AfterFunc(20*time.Millisecond, func() { _ = w.set.Close() })
	if _, _, err := readWatched(w); err == nil {
		t.Error("no error of a read whose watch is closed")
	}
	w, _ = newWatched(t)
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readWatched(w); err == nil {
		t.Error("no error of a read from a closed pipe")
	}
	if _, err := watch(w.file, unix.EPOLLIN); err == nil {
		t.Error("a closed pipe can be watched")
	}
}

// What a terminal's process writes wakes only a read that waits, and not what writes to
// the terminal. A Write continues when the process reads, and wake ends it.
func TestWatchedTerminal(t *testing.T) {
	master, process := openPty(t)
	file, err := outOfPoller(master)
	if err != nil {
		t.Fatal(err)
	}
	from, err := watch(file, unix.EPOLLIN)
	if err != nil {
		t.Fatal(err)
	}
	to, err := watch(file, unix.EPOLLOUT)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = from.Close(), to.Close() })
	say(t, process, "text")
	if from.hasEvent(t) || to.hasEvent(t) {
		t.Error("the terminal has an event, and neither a read nor a write waits for it")
	}
	if got, _, err := readWatched(from); got != "text" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	data := letters(64 << 10)
	time.AfterFunc(50*time.Millisecond, to.wake)
	n, err := to.Write(data)
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == len(data) {
		t.Fatalf("wrote %d of %d without a reader: %v", n, len(data), err)
	}
	to.letWait()
	written := make(chan error, 1)
	go func() {
		_, err := to.Write(data[n:])
		written <- err
	}()
	giveUp := time.AfterFunc(20*time.Second, func() { _, _ = from.Close(), to.Close() })
	defer giveUp.Stop()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(process, got); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the process reads other bytes than were written: %v", err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}
