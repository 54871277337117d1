package guest

import (
	"fmt"
	"os"
	"strings"

	"github.com/sirupsen/logrus"
)

// Options are the agent's options on the kernel command line.
type Options struct {
	// LogLevel is the least severe level that is logged (agent.log=LEVEL).
	LogLevel logrus.Level
	// DebugConsole lets the host start processes in the guest itself
	// (agent.debug_console).
	DebugConsole bool
}

// ReadOptions reads the kernel command line. /proc must be mounted.
func ReadOptions() (Options, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return parseOptions(""), fmt.Errorf("read kernel command line: %w", err)
	}
	return parseOptions(string(line)), nil
}

// parseOptions parses the "agent." parameters of a kernel command line. Unknown
// parameters and values are ignored: an older agent must boot with a newer
// host's command line.
func parseOptions(line string) Options {
	opts := Options{LogLevel: logrus.InfoLevel}
	for _, word := range strings.Fields(line) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "agent.debug_console":
			opts.DebugConsole = true
		case "agent.log":
			if level, err := logrus.ParseLevel(value); err == nil {
				opts.LogLevel = level
			}
		}
	}
	return opts
}
