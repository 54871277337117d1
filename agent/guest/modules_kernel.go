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

// answerKernel directs the kernel's requests for modules to the agent, which
// under the name modprobe behaves as package agent/modules/modprobe describes.
// An image with its own modprobe keeps that.
//
// Our image contains no modprobe, because a booting kernel requests modules
// that it can do without, and would each time wait for a process to refuse.
func answerKernel(modprobe string) error {
	if err := os.MkdirAll(filepath.Dir(modprobe), 0o755); err != nil {
		return fmt.Errorf("make directory of modprobe: %w", err)
	}
	if err := os.Symlink(agentFile, modprobe); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("link modprobe to the agent: %w", err)
	}
	return nil
}
