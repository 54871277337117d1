package qmp

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
)

// A dump of a guest's memory takes longer than other commands: its caller has a bound
// for it.
func TestLongDump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, server := qmptest.Pipe(t)
		m := New(conn)
		defer m.Disconnect()
		const needs = time.Hour
		go func() {
			server.Handshake()
			dump := server.Next()
			time.Sleep(needs)
			server.Send(qmptest.Reply(dump, struct{}{}))
		}()
		if err := m.Connect(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), needs+time.Minute)
		defer cancel()
		if err := m.Execute(ctx, "dump-guest-memory", nil, nil); err != nil {
			t.Error(err)
		}
	})
}
