package stream

import (
	"bytes"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

func (o *output) isRelayed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.relay != nil
}

// The host gets what the process writes, once and in its order, however often counts
// and parks stop the relay.
func TestRelayIsStoppedAtAnyTime(t *testing.T) {
	s := newStdio(t, Request{Stdout: true})
	data := pattern(48 << 20)
	go func() {
		_, _ = s.Child().Stdout.Write(data)
		s.Child().Close()
	}()
	relays, parks := 0, 0
	var got []byte
	for deadline := time.Now().Add(time.Minute); len(got) < len(data); parks++ {
		out, before := rebind(t, s, stdout)
		if before != uint64(len(got)) {
			t.Fatalf("sent %d, and the host read %d", before, len(got))
		}
		read := readsMeanwhile(out)
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		if s.stdout.isRelayed() {
			relays++
		}
		if o, _ := s.Totals(); o < before || o > uint64(len(data)) {
			t.Errorf("total %d after %d", o, before)
		}
		park(t, s, 0)
		got = append(got, <-read...)
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d bytes in a minute", len(got), len(data))
		}
	}
	if !bytes.Equal(got, data) {
		t.Errorf("%d bytes, or others, of %d", len(got), len(data))
	}
	if relays == 0 {
		t.Error("nothing was relayed")
	}
	t.Logf("%d of %d parks interrupted a relay", relays, parks)
}

// A total counts all that was written, also what a relay has read.
func TestTotalWhileTheHostDoesNotReadARelay(t *testing.T) {
	s := newStdio(t, Request{Stdout: true})
	out := attach(t, s, stdout)
	var written atomic.Int64
	go func() {
		block := make([]byte, 4<<10) // PIPE_BUF: all of it is written, or nothing
		for {
			n, err := s.Child().Stdout.Write(block)
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	}()
	_, _ = io.CopyN(io.Discard, out, 8<<20)
	waitUntil(t, "a full pipe", func() bool {
		before := written.Load()
		time.Sleep(100 * time.Millisecond)
		return written.Load() == before
	})
	if !s.stdout.isRelayed() {
		t.Error("it is not relayed")
	}
	// The writer may not have counted a block yet that the relay already has.
	waitUntil(t, "a total that is right", func() bool {
		o, _ := s.Totals()
		return o == uint64(written.Load())
	})
}

// Neither a process that does not write nor a host that does not read keeps the
// stream from being closed.
func TestCloseDuringARelay(t *testing.T) {
	for name, reads := range map[string]bool{"the process writes no more": true, "the host does not read": false} {
		t.Run(name, func(t *testing.T) {
			s := newStdio(t, Request{Stdout: true})
			out := attach(t, s, stdout)
			size := 8 << 20
			go func() { _, _ = s.Child().Stdout.Write(make([]byte, size)) }()
			waitUntil(t, "a relay", func() bool {
				_, _ = io.CopyN(io.Discard, out, 1<<10)
				return s.stdout.isRelayed()
			})
			if reads {
				go func() { _, _ = io.Copy(io.Discard, out) }()
			}
			closed := make(chan struct{})
			go func() {
				s.Close()
				close(closed)
			}()
			select {
			case <-closed:
			case <-time.After(10 * time.Second):
				t.Fatal("Close waits")
			}
		})
	}
}

// A reader that is lost during a relay breaks the pipe, as at any other time.
func TestReaderOfARelayIsLost(t *testing.T) {
	s := newStdio(t, Request{Stdout: true})
	out := attach(t, s, stdout)
	wrote := writeAll(s.Child().Stdout, make([]byte, 64<<20))
	waitUntil(t, "a relay", func() bool {
		_, _ = io.CopyN(io.Discard, out, 1<<10)
		return s.stdout.isRelayed()
	})
	_ = out.Close()
	select {
	case err := <-wrote:
		if err == nil {
			t.Error("the process wrote all")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the process is not told")
	}
}
