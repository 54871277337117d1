package virtcontainers_test

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/config"
)

// Without the setting the guest is not even asked; with it, the fake guest, which
// has no such port, refuses the connection.
func TestOpenDebug(t *testing.T) {
	p := newPod(t)
	if _, err := p.OpenDebug(t.Context()); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "debug_console_enabled = true") {
		t.Errorf("without the setting: %v", err)
	}
	p = configured(t, func(c *config.Config) { c.Agent.DebugConsole = true })
	if _, err := p.OpenDebug(t.Context()); err == nil || errdefs.IsFailedPrecondition(err) {
		t.Errorf("with it: %v", err)
	}
}
