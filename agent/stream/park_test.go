package stream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// park parks a stdio whose host has sent that much input.
func park(t *testing.T, s *Stdio, sent int) {
	t.Helper()
	n := uint64(sent)
	if err := s.Park(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
}

// pattern is data in which each place is different.
func pattern(size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	return data
}

// writeAll writes as a process does, and reports the result.
func writeAll(f *os.File, data []byte) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := f.Write(data)
		done <- err
	}()
	return done
}

// readsMeanwhile reads a connection to its end, and sends what it has read.
func readsMeanwhile(r io.Reader) <-chan string {
	read := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(r)
		read <- string(text)
	}()
	return read
}

// waitUntil waits for what other goroutines do.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 20_000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("timed out: " + what)
}

func (in *input) has(received uint64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.received >= received
}

func (in *input) held() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.queue) + in.hand
}

func TestParkedOutputWaitsInItsPipe(t *testing.T) {
	s := newStdio(t, Request{Stdout: true, Stderr: true})
	out, errs := attach(t, s, stdout), attach(t, s, stderr)
	_, _ = s.Child().Stdout.WriteString("before")
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // The second finds nothing to do.
		park(t, s, 0)
	}
	if got := readAll(t, out) + readAll(t, errs); got != "" {
		t.Errorf("%q was sent", got)
	}
	if got := s.Unbound(); len(got) != 2 {
		t.Errorf("unbound: %v", got)
	}
	for _, f := range []*os.File{s.Child().Stdout, s.Child().Stderr} {
		if _, err := f.WriteString("meanwhile"); err != nil {
			t.Errorf("the process wrote: %v", err)
		}
	}
	if o, e := s.Totals(); o != 15 || e != 9 {
		t.Errorf("totals %d, %d", o, e)
	}
	out, sentOut := rebind(t, s, stdout)
	errs, sentErr := rebind(t, s, stderr)
	if sentOut != 6 || sentErr != 0 {
		t.Errorf("sent before: %d, %d", sentOut, sentErr)
	}
	s.Child().Close()
	if o, e := readAll(t, out), readAll(t, errs); o != "meanwhile" || e != "meanwhile" {
		t.Errorf("%q, %q", o, e)
	}
}

// A host that reads nothing does not hold up Park, and gets all later, also of a
// process that ends meanwhile.
func TestParkInterruptsABlockedWrite(t *testing.T) {
	s := newStdio(t, Request{Stdout: true})
	out := attach(t, s, stdout)
	data := pattern(4 << 20)
	written := writeAll(s.Child().Stdout, data[:len(data)-1])
	waitUntil(t, "a write that blocks", func() bool {
		before, _ := s.Totals()
		time.Sleep(50 * time.Millisecond)
		after, _ := s.Totals()
		return before == after && after > 0
	})
	park(t, s, 0)
	got := []byte(readAll(t, out))
	out, sent := rebind(t, s, stdout)
	if sent != uint64(len(got)) || sent == 0 {
		t.Errorf("sent %d, and the host read %d", sent, len(got))
	}
	rest := make([]byte, len(data)-1-len(got))
	if _, err := io.ReadFull(out, rest[:len(rest)-100]); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Errorf("the process wrote: %v", err)
	}
	park(t, s, 0)
	_, _ = s.Child().Stdout.Write(data[len(data)-1:])
	s.Child().Close()
	got = append(append(got, rest[:len(rest)-100]...), readAll(t, out)...)
	out, sent = rebind(t, s, stdout)
	if sent != uint64(len(got)) {
		t.Errorf("sent %d, and the host read %d", sent, len(got))
	}
	if got = append(got, readAll(t, out)...); !bytes.Equal(got, data) {
		t.Errorf("%d bytes, or others, of %d", len(got), len(data))
	}
	if o, _ := s.Totals(); o != uint64(len(data)) {
		t.Errorf("total %d", o)
	}
}

// Whenever Park comes, no byte is lost, repeated or moved.
func TestParkAtAnyTime(t *testing.T) {
	s := newStdio(t, Request{Stdin: true, Stdout: true})
	data := pattern(3 << 20)
	echoed := make(chan error, 1)
	child := s.Child()
	go func() {
		_, err := io.Copy(child.Stdout, child.Stdin) // Reads and writes the pipes themselves.
		child.Close()
		echoed <- err
	}()
	var got []byte
	sent := 0
	for rest := data; len(rest) > 0; {
		in := attach(t, s, stdin)
		out, before := rebind(t, s, stdout)
		if before != uint64(len(got)) {
			t.Fatalf("sent %d, and the host read %d", before, len(got))
		}
		read := readsMeanwhile(out)
		n := min(len(rest), 1+rand.IntN(300<<10))
		if _, err := in.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest, sent = rest[n:], sent+n
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		park(t, s, sent)
		got = append(got, <-read...)
	}
	in, out := attach(t, s, stdin), attach(t, s, stdout)
	_ = in.CloseWrite()
	if got = append(got, readAll(t, out)...); !bytes.Equal(got, data) {
		t.Errorf("%d bytes, or others, of %d", len(got), len(data))
	}
	if err := <-echoed; err != nil {
		t.Error(err)
	}
}

// What is under way is read although the process does not read, and is the first
// that it reads after.
func TestParkedInputIsKept(t *testing.T) {
	s := newStdio(t, Request{Stdin: true})
	in := attach(t, s, stdin)
	data := pattern(600 << 10)
	go func() { _, _ = in.Write(data[:500<<10]) }()
	park(t, s, 500<<10)
	if _, err := in.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection lives: %v", err)
	}
	in, received := rebind(t, s, stdin)
	if received != 500<<10 { // another host counts from there
		t.Errorf("the host is told of %d bytes", received)
	}
	go func() {
		_, _ = in.Write(data[500<<10:])
		_ = in.CloseWrite()
	}()
	if got := readAll(t, s.Child().Stdin); got != string(data) {
		t.Errorf("%d bytes, or others, of %d", len(got), len(data))
	}
}

func TestParkedInputThatIsNotCounted(t *testing.T) {
	s := newStdio(t, Request{Stdin: true})
	in := attach(t, s, stdin)
	data := pattern(150 << 10)
	if _, err := in.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := s.Park(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	s.CloseStdin()
	if got := readAll(t, s.Child().Stdin); got != string(data) {
		t.Errorf("%d bytes, or others, of %d", len(got), len(data))
	}
}

// An input that ends, before Park or after, ends for the process after its last
// byte. It needs no other connection.
func TestParkedInputEnds(t *testing.T) {
	data := pattern(150 << 10) // More than a pipe holds, but with a socket it does.
	tests := map[string]func(t *testing.T, s *Stdio, in *net.UnixConn){
		"half-closed before": func(t *testing.T, s *Stdio, in *net.UnixConn) {
			_ = in.CloseWrite() // The host then does not announce it.
			if err := s.Park(t.Context(), nil); err != nil {
				t.Error(err)
			}
		},
		"closed before": func(t *testing.T, s *Stdio, _ *net.UnixConn) {
			s.CloseStdin()
			park(t, s, len(data))
		},
		"closed after": func(t *testing.T, s *Stdio, _ *net.UnixConn) {
			park(t, s, len(data))
			s.CloseStdin()
		},
		"closed when all is taken": func(t *testing.T, s *Stdio, _ *net.UnixConn) {
			park(t, s, len(data))
			go func() {
				waitUntil(t, "an empty queue", func() bool { return s.stdin.held() == 0 })
				s.CloseStdin()
			}()
		},
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStdio(t, Request{Stdin: true})
			in := attach(t, s, stdin)
			if _, err := in.Write(data); err != nil {
				t.Fatal(err)
			}
			end(t, s, in)
			if got := readAll(t, s.Child().Stdin); got != string(data) {
				t.Errorf("%d bytes, or others, of %d", len(got), len(data))
			}
		})
	}
}

// Input that the host has announced and that does not come fails Park, which may
// be called again.
func TestParkWaitsNoLongerThanItsCall(t *testing.T) {
	s := newStdio(t, Request{Stdin: true, Stdout: true})
	in, out := attach(t, s, stdin), attach(t, s, stdout)
	_, _ = in.Write([]byte("some"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	n := uint64(8)
	if err := s.Park(ctx, &n); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if got := s.Unbound(); len(got) != 1 || got[0] != stdout {
		t.Errorf("unbound: %v", got)
	}
	if got := readAll(t, out); got != "" {
		t.Errorf("%q", got)
	}
	if _, err := in.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	if _, err := io.ReadFull(s.Child().Stdin, got); err != nil || string(got) != "somemore" {
		t.Errorf("%q, %v", got, err)
	}
	park(t, s, 8)
	if _, err := in.Read(got); !errors.Is(err, io.EOF) {
		t.Errorf("the connection lives: %v", err)
	}
}

// Park fails if the host says that it has sent more than is kept. A host that says
// it has sent less than it has gets what it asks for.
func TestParkRefusesWhatItCannotKeep(t *testing.T) {
	s := newStdio(t, Request{Stdin: true, Stdout: true})
	in := attach(t, s, stdin)
	attach(t, s, stdout)
	_, _ = in.Write([]byte("some"))
	waitUntil(t, "input", func() bool { return s.stdin.has(4) })
	for _, n := range []uint64{maxKept + 5, 1 << 63, 1<<64 - 1} {
		if err := s.Park(t.Context(), &n); !errdefs.IsResourceExhausted(err) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if got := s.Unbound(); len(got) != 0 {
		t.Errorf("unbound: %v", got)
	}
	park(t, s, 3)
	s.CloseStdin()
	if got := readAll(t, s.Child().Stdin); got != "some" {
		t.Errorf("%q", got)
	}
}

// What is kept is bounded, also when the host does not say how much it sends.
func TestParkedInputIsBounded(t *testing.T) {
	s := newStdio(t, Request{Stdin: true})
	in := attach(t, s, stdin)
	go func() { _, _ = io.Copy(in, rand.NewChaCha8([32]byte{})) }()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := s.Park(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if held := s.stdin.held(); held > maxKept {
		t.Errorf("%d bytes are kept", held)
	}
}

// A process that closes its input while that is parked leaves nothing to connect.
func TestProcessClosesItsParkedInput(t *testing.T) {
	s := newStdio(t, Request{Stdin: true})
	in := attach(t, s, stdin)
	data := pattern(200 << 10)
	go func() { _, _ = in.Write(data) }()
	park(t, s, len(data))
	_ = s.Child().Stdin.Close()
	waitUntil(t, "the end of the input", func() bool {
		s.stdin.mu.Lock()
		defer s.stdin.mu.Unlock()
		return s.stdin.over
	})
	in = attach(t, s, stdin)
	if _, err := in.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection lives: %v", err)
	}
}

// Streams that have ended are left alone; a host that connects nevertheless gets
// the end.
func TestParkLeavesEndedStreams(t *testing.T) {
	s := newStdio(t, Request{Stdout: true})
	out := attach(t, s, stdout)
	_, _ = s.Child().Stdout.WriteString("all")
	s.Child().Close()
	if got := readAll(t, out); got != "all" {
		t.Errorf("%q", got)
	}
	waitUntil(t, "the end", func() bool { return s.stdout.is(ended) })
	park(t, s, 0)
	if got := s.Unbound(); len(got) != 0 {
		t.Errorf("unbound: %v", got)
	}
	out, sent := rebind(t, s, stdout)
	if got := readAll(t, out); got != "" || sent != 3 {
		t.Errorf("%q after %d bytes", got, sent)
	}
}

// Park comes between the two steps of a binding: the connection must not survive.
func TestParkVoidsReservations(t *testing.T) {
	s := newStdio(t, Request{Stdin: true, Stdout: true})
	for _, stream := range []api.Stream{stdin, stdout} {
		late, err := s.Reserve(stream)
		if err != nil {
			t.Fatal(err)
		}
		park(t, s, 0)
		next, err := s.Reserve(stream)
		if err != nil {
			t.Fatal(err)
		}
		host, guest := socketPair(t)
		late.Attach(guest, nil)
		if _, err := host.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%v: the connection lives: %v", stream, err)
		}
		_, guest = socketPair(t)
		next.Attach(guest, nil)
		if !s.end(stream).is(bound) {
			t.Errorf("%v: the next reservation is void, too", stream)
		}
	}
}

// Close ends what is parked, and a Park that waits.
func TestCloseWhileParking(t *testing.T) {
	s := newStdio(t, Request{Stdin: true, Stdout: true})
	attach(t, s, stdin)
	attach(t, s, stdout)
	parked := make(chan error, 1)
	go func() {
		n := uint64(100)
		parked <- s.Park(context.Background(), &n)
	}()
	waitUntil(t, "parking", func() bool { return s.stdin.is(parking) })
	s.Close()
	if err := <-parked; err != nil {
		t.Error(err)
	}
	if err := s.Park(t.Context(), nil); err != nil {
		t.Errorf("closed: %v", err)
	}
}

// What a host sends as soon as it learns that its input is bound is not lost if it
// parks that then.
func TestParkFollowsABinding(t *testing.T) {
	s := newStdio(t, Request{Stdin: true})
	place, err := s.Reserve(stdin)
	if err != nil {
		t.Fatal(err)
	}
	in, guest := socketPair(t)
	told := make(chan struct{})
	place.Attach(guest, func() {
		_, _ = guest.Write([]byte("!"))
		<-told
		_ = guest.SetDeadline(time.Time{})
	})
	if _, err := io.ReadFull(in, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(in, "some")
	parked := make(chan error, 1)
	go func() { parked <- s.Park(t.Context(), nil) }()
	waitUntil(t, "parking", func() bool { return s.stdin.is(parking) })
	close(told)
	if err := <-parked; err != nil {
		t.Error(err)
	}
	if !s.stdin.has(4) {
		t.Error("the input is lost")
	}
}
