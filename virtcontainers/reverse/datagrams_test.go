package reverse

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// pipeConn is a connection in memory: writing waits for the reader.
type pipeConn struct{ net.Conn }

func (p pipeConn) CloseWrite() error { return p.Close() }

// An answer that comes while the guest does not run, because its pod hibernates, waits:
// another connection would wake the pod.
func TestAnswerWaitsForTheGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, guestEnd := net.Pipe()
		opens := 0
		open := func(context.Context, *api.ReverseOpen) (guest.Conn, error) {
			opens++
			return pipeConn{host}, nil
		}
		server := func() (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				_, _ = io.Copy(theirs, theirs)
				_ = theirs.Close()
			}()
			return ours, nil
		}
		d, err := openDatagrams(t.Context(), open, "127.0.0.11:53", server)
		if err != nil {
			t.Fatal(err)
		}
		if err := api.WriteDatagram(guestEnd, api.Datagram{ID: 1, Data: []byte("query")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if answer, err := api.ReadDatagram(guestEnd); err != nil || answer.ID != 1 || string(answer.Data) != "query" {
			t.Errorf("after a minute: answer %d: %q, %v", answer.ID, answer.Data, err)
		}
		if opens != 1 {
			t.Errorf("%d connections were opened, want 1", opens)
		}
		// One that is not read does not delay the end.
		if err := api.WriteDatagram(guestEnd, api.Datagram{ID: 2, Data: []byte("query")}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}
