package hostcgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
)

// Bound is the most that the cgroup may have where all of the pod is that is not
// charged for the guest: the overhead cgroup, or with Options.Only the pod's
// own. The VM may be there or come there. A field that is 0 is left as it is.
type Bound struct {
	// Memory is in bytes, Processes counts threads.
	Memory, Processes uint64
}

// SetBound sets such a bound in every hierarchy that knows it. With v1 the kernel
// refuses a bound of memory below what is in use.
func (c *Cgroup) SetBound(b Bound) error {
	var errs []error
	for _, p := range c.places {
		dir := p.rest()
		if p.limitsMemory() {
			errs = append(errs, bound(filepath.Join(dir, p.memoryFile()), b.Memory))
		}
		if p.unified || p.has("pids") {
			errs = append(errs, bound(filepath.Join(dir, "pids.max"), b.Processes))
		}
	}
	return errors.Join(errs...)
}

// bound writes a bound; a v2 cgroup whose parent has the controller not turned on
// has no file for it.
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
