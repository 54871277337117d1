package vsock

import (
	"testing"
	"testing/synctest"
)

// A device that does not end does not keep stop from returning.
func TestStopOfAStuckDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &served{dev: newDevice(t.Context()), cancel: func() {}, ended: make(chan struct{})}
		if err := s.stop(nil); err != nil {
			t.Errorf("stop: %v", err)
		}
		if s.dev.err == nil {
			t.Error("the device's connections go on")
		}
	})
}
