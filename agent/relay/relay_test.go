package relay

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const blockSize = 64 << 10

// bed is a relay with its ends, and what is at their other sides.
type bed struct {
	*Relay
	from    *os.File
	to      net.Conn
	process *os.File
	host    net.Conn
}

// run is what Run returned.
type run struct {
	read uint64
	rest []byte
	err  error
}

func newBed(t *testing.T, kind int) *bed {
	t.Helper()
	r, err := New()
	if err != nil {
		t.Fatal(err)
	}
	r.Small, r.Pause, r.Idle = 1<<10, time.Millisecond, time.Minute
	from, process, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{Relay: r, from: from, process: process, host: conn(t, fds[0]), to: conn(t, fds[1])}
	t.Cleanup(func() {
		for _, c := range []io.Closer{process, from, b.host, b.to, r} {
			_ = c.Close()
		}
	})
	_ = b.host.SetDeadline(time.Now().Add(20 * time.Second))
	return b
}

func conn(t *testing.T, fd int) net.Conn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// begin begins a run.
func (b *bed) begin() <-chan run {
	done := make(chan run, 1)
	go func() {
		var r run
		r.read, r.rest, r.err = b.Run(b.from, b.to.(*net.UnixConn), make([]byte, blockSize))
		done <- r
	}()
	return done
}

// ended waits for a run's end, and checks what it read and did not send.
func ended(t *testing.T, done <-chan run, read int, rest []byte) {
	t.Helper()
	select {
	case r := <-done:
		if r.err != nil || r.read != uint64(read) || !bytes.Equal(r.rest, rest) {
			t.Errorf("%d bytes were read, %d not sent, %v; want %d and %d", r.read, len(r.rest), r.err, read, len(rest))
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the run does not end")
	}
}

func runs(t *testing.T, done <-chan run) {
	t.Helper()
	select {
	case r := <-done:
		t.Fatalf("the run has ended: %+v", r)
	case <-time.After(50 * time.Millisecond):
	}
}

func pattern(size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	return data
}

func TestUntilTheLastWriter(t *testing.T) {
	b := newBed(t, unix.SOCK_STREAM)
	data := pattern(3<<20 + 5)
	go func() {
		_, _ = b.process.Write(data)
		_ = b.process.Close()
	}()
	done := b.begin()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(b.host, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, data) {
		t.Error("other bytes arrived")
	}
	ended(t, done, len(data), nil)
}

func TestStop(t *testing.T) {
	for name, early := range map[string]bool{"before": true, "while it waits": false} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, unix.SOCK_STREAM)
			if early {
				b.Stop()
			}
			done := b.begin()
			if !early {
				runs(t, done)
				b.Stop()
				b.Stop()
			}
			ended(t, done, 0, nil)
		})
	}
}

// What a run that was stopped has read is sent, or in its rest.
func TestStopWhileTheHostDoesNotRead(t *testing.T) {
	b := newBed(t, unix.SOCK_STREAM)
	data := pattern(2 << 20)
	go func() { _, _ = b.process.Write(data) }()
	done := b.begin()
	runs(t, done)
	b.Stop()
	r := <-done
	if r.err != nil || len(r.rest) == 0 {
		t.Fatalf("%d bytes are left, %v", len(r.rest), r.err)
	}
	got := make([]byte, int(r.read)-len(r.rest))
	if _, err := io.ReadFull(b.host, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(append(got, r.rest...), data[:r.read]) {
		t.Error("other bytes arrived or are left")
	}
	_ = b.from.Close() // for the writer
}

// A process that never lets the relay wait does not keep it from being stopped.
func TestStopWhileAllFlows(t *testing.T) {
	b := newBed(t, unix.SOCK_STREAM)
	go func() {
		block := make([]byte, blockSize)
		for {
			if _, err := b.process.Write(block); err != nil {
				return
			}
		}
	}()
	read := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, b.host)
		read <- n
	}()
	done := b.begin()
	runs(t, done)
	b.Stop()
	select {
	case r := <-done:
		_ = b.to.Close()
		if n := <-read; r.read == 0 || uint64(n)+uint64(len(r.rest)) != r.read {
			t.Errorf("%d bytes were read, %d arrived and %d are left", r.read, n, len(r.rest))
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the run does not end")
	}
	_ = b.from.Close() // for the writer
}

func TestIdle(t *testing.T) {
	b := newBed(t, unix.SOCK_STREAM)
	b.Idle = time.Millisecond
	_, _ = b.process.WriteString("few")
	ended(t, b.begin(), 3, nil)
}

func TestHostIsGone(t *testing.T) {
	b := newBed(t, unix.SOCK_STREAM)
	_ = b.host.Close()
	done := b.begin()
	_, _ = b.process.WriteString("lost")
	ended(t, done, 4, []byte("lost"))
}

// Little at a time is gathered. The socket keeps what was sent at once apart.
func TestSmallReadsAreGathered(t *testing.T) {
	b := newBed(t, unix.SOCK_SEQPACKET)
	b.Pause = 100 * time.Millisecond
	done := b.begin()
	const writes = 200
	go func() {
		for range writes {
			_, _ = b.process.WriteString("x")
		}
		_ = b.process.Close()
	}()
	packets := 0
	for got, buf := 0, make([]byte, writes); got < writes; packets++ {
		n, err := b.host.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
	if packets > writes/4 {
		t.Errorf("%d packets for %d bytes", packets, writes)
	}
	ended(t, done, writes, nil)
}

// Its ends stay open during a run.
func TestCloseDuringARun(t *testing.T) {
	b := newBed(t, unix.SOCK_STREAM)
	done := b.begin()
	runs(t, done)
	closed := make(chan struct{})
	go func() {
		_ = b.from.Close()
		_ = b.to.Close()
		close(closed)
	}()
	runs(t, done)
	b.Stop()
	ended(t, done, 0, nil)
	<-closed
	if _, _, err := b.Run(b.from, b.to.(*net.UnixConn), make([]byte, 1)); err == nil {
		t.Error("a run with closed ends succeeded")
	}
}
