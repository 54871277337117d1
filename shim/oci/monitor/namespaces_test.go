package monitor

import (
	"os/exec"
	"strings"
	"testing"
)

// The user is told of the container's process, and not of one of the host's that has
// gone with it.
func TestEnterAfterTheEnd(t *testing.T) {
	c := exec.CommandContext(t.Context(), "true")
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	err := enter(c.Process.Pid)
	if err == nil || !strings.HasPrefix(err.Error(), "the container's process has ended: ") {
		t.Errorf("error %v, want that the container's process has ended", err)
	}
}
