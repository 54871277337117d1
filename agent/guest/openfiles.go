package guest

import (
	"errors"
	"fmt"
	"path/filepath"
)

// maxOpenFiles is the most that the kernel takes as a process's limit (fs/file.c,
// sysctl_nr_open_max: INT_MAX, rounded down to a multiple of 64), and maxAllFiles as the
// limit on the files of all processes (LONG_MAX). systemd sets the second on a host,
// too; its nr_open is 1073741816.
const maxOpenFiles, maxAllFiles = "2147483584", "9223372036854775807"

// allowOpenFiles allows containers to have rlimits above 1,048,576 open files, the
// kernel's own limit, and to use them: by itself the kernel bounds the files of all
// processes by the memory of the machine's start. Open files count as their container's
// memory. proc is where procfs is mounted.
func allowOpenFiles(proc string) error {
	var errs []error
	for file, limit := range map[string]string{"nr_open": maxOpenFiles, "file-max": maxAllFiles} {
		if err := writeFile(filepath.Join(proc, "sys/fs", file), limit); err != nil {
			errs = append(errs, fmt.Errorf("allow more open files: %w", err))
		}
	}
	return errors.Join(errs...)
}
