package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
)

// opensAndEnds is a guest that gives an answer, sends some bytes and ends.
func opensAndEnds(t *testing.T, open, answer proto.Message, bytes string) DialFunc {
	return func(context.Context, uint32) (Conn, error) {
		host, other := net.Pipe()
		go func() {
			defer other.Close()
			if err := errors.Join(api.ReadFrame(other, open), api.WriteFrame(other, answer)); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(other, bytes)
		}()
		return pipe{host}, nil
	}
}

// The host asks for marked ends, and reads them from a guest that agrees. One whose
// agent is older is not misread.
func TestForwardAsksForMarks(t *testing.T) {
	for _, test := range []struct {
		answer *api.ForwardOpened
		bytes  string
		want   error
	}{
		{&api.ForwardOpened{Marked: true}, "\x00\x02ab\x00\x00", nil},
		{&api.ForwardOpened{Marked: true}, "\x00\x02ab", syscall.ECONNRESET},
		{&api.ForwardOpened{}, "ab", nil},
	} {
		var asked api.ForwardOpen
		c := &Client{dial: opensAndEnds(t, &asked, test.answer, test.bytes)}
		conn, err := c.Forward(t.Context(), "127.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if string(got) != "ab" || !errors.Is(err, test.want) || !asked.GetMarked() {
			t.Errorf("asked %v, answered %v: read %q, %v, want %v", &asked, test.answer, got, err, test.want)
		}
		_ = conn.Close()
	}
}

// Marks that were not asked for are no marks.
func TestReverseMarks(t *testing.T) {
	for _, marked := range []bool{false, true} {
		var asked api.ReverseOpen
		c := &Client{dial: opensAndEnds(t, &asked, &api.ReverseOpened{Marked: true}, "\x00\x01a")}
		conn, err := c.Reverse(t.Context(), &api.ReverseOpen{What: &api.ReverseOpen_Take{Take: 7}, Marked: marked})
		if err != nil {
			t.Fatal(err)
		}
		want, end := "\x00\x01a", error(nil)
		if marked {
			want, end = "a", syscall.ECONNRESET
		}
		if got, err := io.ReadAll(conn); string(got) != want || !errors.Is(err, end) {
			t.Errorf("marked %v: read %q, %v, want %q, %v", marked, got, err, want, end)
		}
		_ = conn.Close()
	}
}
