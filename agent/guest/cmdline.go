package guest

import (
	"fmt"
	"os"
	"path/filepath"
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

// commandLineSysctls returns which sysctls the kernel command line sets, by their files
// below /proc/sys: the operator's choice, which the agent's does not replace. proc is where
// procfs is mounted.
func commandLineSysctls(proc string) map[string]bool {
	files := map[string]bool{}
	line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return files // There is no command line, or none that can be known.
	}
	for _, word := range strings.Fields(string(line)) {
		key, _, _ := strings.Cut(word, "=")
		// fs/proc/proc_sysctl.c, process_sysctl_arg: both separators are taken.
		if name, ok := strings.CutPrefix(key, "sysctl"); ok && len(name) > 1 && strings.ContainsAny(name[:1], "./") {
			files[strings.ReplaceAll(name[1:], ".", "/")] = true
		}
	}
	return files
}
