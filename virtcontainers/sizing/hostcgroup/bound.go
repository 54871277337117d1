package hostcgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
)

// Bound limits each of a pod's cgroups: the VM may be in either of them, and get
// from one to the other. A field that is 0 changes nothing.
type Bound struct {
	// Memory is in bytes, Processes counts threads.
	Memory, Processes uint64
}

// SetBound sets a bound in every hierarchy that supports it. With v1 the kernel
// refuses a bound of memory below what is in use.
func (c *Cgroup) SetBound(b Bound) error {
	var errs []error
	for _, p := range c.places {
		for _, dir := range p.dirs() {
			if p.limitsMemory() {
				errs = append(errs, bound(filepath.Join(dir, p.memoryFile()), b.Memory))
			}
			if p.limitsThreads() {
				errs = append(errs, bound(filepath.Join(dir, threadsFile), b.Processes))
			}
		}
	}
	return errors.Join(errs...)
}

// bound writes a bound; a v2 cgroup has no file for it unless its parent has
// enabled the controller.
func bound(file string, most uint64) error {
	if most == 0 {
		return nil
	}
	err := write(file, strconv.FormatUint(most, 10))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("set %s to %d: %w", filepath.Base(file), most, err)
}
