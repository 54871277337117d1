package qmp

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
)

// A command whose time depends on its arguments has the time that its caller says.
func TestExecuteWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, server := qmptest.Pipe(t)
		m := New(conn)
		defer m.Disconnect()
		go func() {
			server.Handshake()
			server.Next()
		}()
		if err := m.Connect(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err := m.ExecuteWithin(t.Context(), 10*DefaultTimeout, "object-add", nil, nil)
		var timeout *TimeoutError
		if got := time.Since(start); got != 10*DefaultTimeout || !errors.As(err, &timeout) || timeout.After != got {
			t.Errorf("gave up after %v: %v", got, err)
		}
	})
}
