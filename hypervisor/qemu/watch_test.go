package qemu

import (
	"strings"
	"testing"

	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// A compromised QEMU may give any reason for its end.
func TestShutdownReasonIsBounded(t *testing.T) {
	vm := new(VM)
	vm.note(qmp.Event{Event: "SHUTDOWN", Data: map[string]any{"guest": true, "reason": "\x1b[2J" + strings.Repeat("x", 1<<20)}})
	if text := vm.verdict().Error(); len(text) > 200 || strings.Contains(text, "\x1b") {
		t.Errorf("%d bytes of a reason: %.80q", len(text), text)
	}
}
