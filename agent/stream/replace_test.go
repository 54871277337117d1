package stream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// failPark has Park fail for an input that is announced and does not come.
func failPark(t *testing.T, s *Stdio, announced uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Park(ctx, &announced); err == nil {
		t.Fatal("parked without its input")
	}
}

// refusePark has Park fail because of what it would have to keep.
func refusePark(t *testing.T, s *Stdio) {
	t.Helper()
	n := uint64(1 << 62)
	if err := s.Park(t.Context(), &n); !errdefs.IsResourceExhausted(err) {
		t.Fatalf("%v, want a refusal", err)
	}
}

func isReserved(t *testing.T, s *Stdio, stream api.Stream) {
	t.Helper()
	if _, err := s.Reserve(stream); !errdefs.IsAlreadyExists(err) {
		t.Errorf("%v is bound twice: %v", stream, err)
	}
}

// endsAt expects the end of the guest's connection.
func endsAt(t *testing.T, host net.Conn) {
	t.Helper()
	if n, err := host.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the connection lives: %d, %v", n, err)
	}
}

// The host learns how much of its input has arrived.
func TestParkedInputIsCounted(t *testing.T) {
	s := newStdio(t, Request{Stdin: true})
	total := 0
	for _, text := range []string{"one", "", "three"} {
		in, sent := rebind(t, s, stdin)
		if sent != uint64(total) {
			t.Errorf("%d bytes were received, want %d", sent, total)
		}
		_, _ = io.WriteString(in, text)
		total += len(text)
		park(t, s, total)
	}
}

// After a Park that has parked nothing each stream is bound again, once.
func TestBindAfterARefusedPark(t *testing.T) {
	s := newStdio(t, Request{Stdin: true, Stdout: true, Stderr: true})
	in, out, errs := attach(t, s, stdin), attach(t, s, stdout), attach(t, s, stderr)
	for _, stream := range allStreams {
		isReserved(t, s, stream)
	}
	data := pattern(100 << 10) // More than a block: the rest waits in the connection.
	_, _ = in.Write(data)
	_, _ = s.Child().Stdout.WriteString("old ")
	if _, err := io.ReadFull(out, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	refusePark(t, s)
	next, received := rebind(t, s, stdin)
	if received != uint64(len(data)) {
		t.Errorf("%d bytes were received of %d", received, len(data))
	}
	nextOut, sent := rebind(t, s, stdout)
	if sent != 4 {
		t.Errorf("%d bytes were sent, want 4", sent)
	}
	nextErrs := attach(t, s, stderr)
	for _, conn := range []net.Conn{in, out, errs} {
		endsAt(t, conn)
	}
	for _, stream := range allStreams {
		isReserved(t, s, stream)
	}
	_, _ = io.WriteString(next, "more")
	_ = next.CloseWrite()
	if got := readAll(t, s.Child().Stdin); got != string(data)+"more" {
		t.Errorf("%d bytes of input, or others", len(got))
	}
	_, _ = s.Child().Stdout.WriteString("new")
	_, _ = s.Child().Stderr.WriteString("error")
	s.Child().Close()
	if o, e := readAll(t, nextOut), readAll(t, nextErrs); o != "new" || e != "error" {
		t.Errorf("output %q, %q", o, e)
	}
}

// An input that is late keeps its connection until there is another.
func TestBindAfterALateInput(t *testing.T) {
	s := newStdio(t, Request{Stdin: true, Stdout: true})
	in := attach(t, s, stdin)
	attach(t, s, stdout)
	_, _ = io.WriteString(in, "some")
	failPark(t, s, 8)
	_, _ = io.WriteString(in, "more") // It comes now.
	attach(t, s, stdout)
	next, received := rebind(t, s, stdin)
	if received != 8 {
		t.Errorf("%d bytes were received, want 8", received)
	}
	endsAt(t, in)
	_ = in.Close()
	_, _ = io.WriteString(next, "last")
	park(t, s, 12)
	s.CloseStdin()
	if got := readAll(t, s.Child().Stdin); got != "somemorelast" {
		t.Errorf("%q", got)
	}
}

// A process that does not read fails Park, and loses nothing: not even when as much
// as Park keeps waits for it.
func TestBindAFullInputAgain(t *testing.T) {
	s := newStdio(t, Request{Stdin: true})
	data := pattern(2*maxKept + 7)
	sent := 0
	write := func(n int, in net.Conn) {
		if _, err := in.Write(data[sent : sent+n]); err != nil {
			t.Fatal(err)
		}
		sent += n
	}
	refused := 0
	for sent < len(data) {
		in, received := rebind(t, s, stdin)
		if received != uint64(sent) {
			t.Fatalf("%d bytes were received of %d", received, sent)
		}
		write(min(100<<10, len(data)-sent), in)
		n := uint64(sent)
		err := s.Park(t.Context(), &n)
		if errdefs.IsResourceExhausted(err) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Error("Park keeps more than its limit")
	}
	in := attach(t, s, stdin)
	_ = in.CloseWrite()
	if got := readAll(t, s.Child().Stdin); got != string(data) {
		t.Errorf("%d bytes, or others, of %d", len(got), len(data))
	}
}

// A host that sends on does not hold up the next connection.
func TestBindWhileTheOldConnectionIsWritten(t *testing.T) {
	s := newStdio(t, Request{Stdin: true})
	in := attach(t, s, stdin)
	refusePark(t, s)
	go func() { _, _ = io.Copy(in, rand.NewChaCha8([32]byte{})) }()
	began := time.Now()
	attach(t, s, stdin)
	if took := time.Since(began); took > releaseTimeout {
		t.Errorf("it took %v", took)
	}
	if held := s.stdin.held(); held > 2*maxKept {
		t.Errorf("%d bytes are kept", held)
	}
}

// lostConn is a connection of which the reader learns that it is lost.
type lostConn struct{ net.Conn }

func (c lostConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = unix.ECONNRESET
	}
	return n, err
}

// A connection that is lost after Park was called is not the end of its input; one
// that is lost without Park is.
func TestInputOfALostConnection(t *testing.T) {
	for _, parked := range []bool{true, false} {
		s := newStdio(t, Request{Stdin: true})
		place, err := s.Reserve(stdin)
		if err != nil {
			t.Fatal(err)
		}
		in, guest := socketPair(t)
		place.Attach(lostConn{guest}, nil)
		_, _ = io.WriteString(in, "some")
		want := "some"
		if parked {
			failPark(t, s, 8)
			want = "somemore"
		}
		_ = in.Close()
		waitUntil(t, "the loss", func() bool { return !s.stdin.is(bound) })
		if unbound := len(s.Unbound()) == 1; unbound != parked {
			t.Errorf("parked %t: it waits for a connection: %t", parked, unbound)
		}
		next := attach(t, s, stdin)
		_, _ = io.WriteString(next, "more")
		_ = next.CloseWrite()
		if got := readAll(t, s.Child().Stdin); got != want {
			t.Errorf("parked %t: %q, want %q", parked, got, want)
		}
	}
}

// The end of a connection that is replaced is the input's if the host had ended
// that before Park.
func TestEndOfAReplacedInput(t *testing.T) {
	data := pattern(100 << 10) // More than a pipe and a block hold.
	for _, announced := range []bool{true, false} {
		s := newStdio(t, Request{Stdin: true})
		in := attach(t, s, stdin)
		_, _ = in.Write(data)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if announced {
			refusePark(t, s)
		} else if err := s.Park(ctx, nil); err == nil {
			t.Fatal("Park did not wait for the end")
		}
		cancel()
		_ = in.CloseWrite()
		want := string(data)
		if announced {
			want += "more"
		}
		next := attach(t, s, stdin)
		_, _ = io.WriteString(next, "more")
		_ = next.CloseWrite()
		if got := readAll(t, s.Child().Stdin); got != want {
			t.Errorf("announced %t: %d bytes, want %d", announced, len(got), len(want))
		}
	}
}

// A reservation that was made before a Park that failed is void when there is
// another.
func TestReserveAgainAfterARefusedPark(t *testing.T) {
	s := newStdio(t, Request{Stdin: true, Stdout: true})
	attach(t, s, stdin)
	late, err := s.Reserve(stdout)
	if err != nil {
		t.Fatal(err)
	}
	refusePark(t, s)
	attach(t, s, stdout)
	host, guest := socketPair(t)
	late.Attach(guest, nil)
	endsAt(t, host)
}

// Whenever Park fails, no byte is lost, repeated or moved.
func TestReplaceAtAnyTime(t *testing.T) {
	s := newStdio(t, Request{Stdin: true, Stdout: true})
	data := pattern(1 << 20)
	child := s.Child()
	go func() {
		_, _ = io.Copy(child.Stdout, child.Stdin)
		child.Close()
	}()
	var got []byte
	sent := 0
	for sent < len(data) {
		in, received := rebind(t, s, stdin)
		out, before := rebind(t, s, stdout)
		if received != uint64(sent) || before < uint64(len(got)) {
			t.Fatalf("received %d of %d, sent %d, read %d", received, sent, before, len(got))
		}
		n := min(len(data)-sent, 1+rand.IntN(150<<10))
		read := readsMeanwhile(out)
		if _, err := in.Write(data[sent : sent+n]); err != nil {
			t.Fatal(err)
		}
		sent += n
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		refusePark(t, s)
		place, err := s.Reserve(stdout)
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, <-read...); place.Sent != uint64(len(got)) {
			t.Fatalf("sent %d, read %d", place.Sent, len(got))
		}
		refusePark(t, s) // Voids the reservation.
	}
	in, out := attach(t, s, stdin), attach(t, s, stdout)
	_ = in.CloseWrite()
	if got = append(got, readAll(t, out)...); !bytes.Equal(got, data) {
		t.Errorf("%d bytes, or others, of %d", len(got), len(data))
	}
}
