package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"github.com/katabox/katabox/agent/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, r *Ring, line string) {
	t.Helper()
	if n, err := r.Write([]byte(line)); n != len(line) || err != nil {
		t.Fatalf("write: %d, %v", n, err)
	}
}

func TestRingIsBounded(t *testing.T) {
	r := NewRing(100)
	for i := range 50 {
		write(t, r, fmt.Sprintf("line %02d\n", i)) // 8 bytes each
	}
	lines, lost, following, _ := r.after(0)
	if len(lines) != 12 || lost != 38 || following != 50 || string(lines[0]) != "line 38\n" {
		t.Errorf("%d lines, %d lost, then %d: %q", len(lines), lost, following, lines)
	}
	if lines, lost, _, _ := r.after(50); len(lines) != 0 || lost != 0 {
		t.Errorf("nothing new gave %d lines, %d lost", len(lines), lost)
	}
}

func TestLongLineIsCut(t *testing.T) {
	r := NewRing(10)
	write(t, r, strings.Repeat("x", 2*api.MaxLogLine))
	lines, _, _, _ := r.after(0)
	if len(lines) != 1 || len(lines[0]) != api.MaxLogLine || lines[0][api.MaxLogLine-1] != '\n' {
		t.Errorf("%d lines, the first of %d bytes", len(lines), len(lines[0]))
	}
}

// serve runs r on a socket and returns a dialer.
func serve(t *testing.T, r *Ring) func() *bufio.Reader {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return func() *bufio.Reader {
		conn, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		return bufio.NewReader(conn)
	}
}

func expect(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil || !strings.Contains(line, want) {
		t.Fatalf("read %q, %v, want %q", line, err, want)
	}
}

func TestServeBufferedThenLive(t *testing.T) {
	r := NewRing(1000)
	write(t, r, "before\n")
	dial := serve(t, r)
	first := dial()
	expect(t, first, "before")
	write(t, r, "after\n")
	expect(t, first, "after")

	second := dial() // Replaces the first one.
	if _, err := first.ReadByte(); err == nil {
		t.Error("the first reader goes on")
	}
	write(t, r, "later\n")
	expect(t, second, "later")
}

func TestSlowReaderIsTold(t *testing.T) {
	r := NewRing(20)
	for i := range 9 {
		write(t, r, fmt.Sprintf("line %d\n", i))
	}
	reader := serve(t, r)()
	expect(t, reader, "7 log lines were dropped")
	expect(t, reader, "line 7")
}

func TestConsoleUntilRead(t *testing.T) {
	var out bytes.Buffer
	r := NewRing(100)
	logger := logrus.New()
	logger.SetOutput(r)
	logger.AddHook(&Console{W: &out, Ring: r})
	logger.Info("quiet")
	logger.WithError(errors.New("why")).Warn("loud")
	r.take()
	logger.Warn("read elsewhere")
	if got := out.String(); got != "kata-agent: warning: loud: why\n" {
		t.Errorf("console: %q", got)
	}
}
