package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// The agent as a file of the image, and the program that the kernel runs when
// it wants a module (CONFIG_MODPROBE_PATH).
const (
	agentFile    = "/init"
	modprobeFile = "/sbin/modprobe"
)

// answerKernel gives the kernel's requests for modules to the agent: under the
// name modprobe it is what package agent/modules/modprobe describes. An image
// that has its own modprobe keeps it.
//
// Ours has none because a kernel that boots asks for what it can do without,
// and would wait each time for a process to say no.
func answerKernel(modprobe string) error {
	if err := os.MkdirAll(filepath.Dir(modprobe), 0o755); err != nil {
		return fmt.Errorf("make directory of modprobe: %w", err)
	}
	if err := os.Symlink(agentFile, modprobe); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("link modprobe to the agent: %w", err)
	}
	return nil
}
