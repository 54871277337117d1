package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// setSysctls sets sysctls, by their files below /proc/sys, and goes on after an error.
// One that the kernel does not have is left out, and what its command line sets stays.
// proc is where procfs is mounted.
func setSysctls(proc string, values map[string]uint64) error {
	var errs []error
	operators := commandLineSysctls(proc)
	for file, value := range values {
		if operators[file] {
			continue
		}
		err := writeFile(filepath.Join(proc, "sys", file), strconv.FormatUint(value, 10))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("set %s to %d: %w", file, value, err))
		}
	}
	return errors.Join(errs...)
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
