package container

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/log"
	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// protection has the memory that containers protect from reclaim (memory.min and
// memory.low) be protected when the whole guest is short of memory: a cgroup protects no
// more than its parent does (mm/page_counter.c, effective_protection).
//
// The parent protects the sum and not all memory. What the kernel charges to it itself,
// such as the dentries of containers that have ended, could not be reclaimed otherwise.
type protection struct {
	mu  sync.Mutex // guards the parent's files
	dir string     // the parent of the containers' cgroups; empty is parentDir
}

// protectionFiles are where a cgroup says what it protects.
var protectionFiles = []string{"memory.min", "memory.low"}

// protects reports whether a container with these limits protects memory.
func protects(r *cgroups.Resources) bool {
	return r.MemoryReservation != 0 || r.Unified["memory.min"] != "" || r.Unified["memory.low"] != ""
}

// fit has the parent protect what the containers together do. It must be called when
// that of one has changed, or when one has ended.
func (p *protection) fit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	dir := cmp.Or(p.dir, parentDir)
	children, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("protect the containers' memory: %w", err)
	}
	var errs []error
	for _, file := range protectionFiles {
		errs = append(errs, fitProtectionFile(dir, file, children))
	}
	return errors.Join(errs...)
}

func fitProtectionFile(dir, file string, children []os.DirEntry) error {
	sum := uint64(0)
	for _, child := range children {
		if !child.IsDir() {
			continue
		}
		bytes, err := readLimit(filepath.Join(dir, child.Name(), file))
		if err != nil {
			return fmt.Errorf("protect the containers' memory: %w", err)
		}
		if sum += bytes; sum < bytes {
			sum = math.MaxUint64
		}
	}
	value := "max"
	if sum <= math.MaxInt64 {
		value = strconv.FormatUint(sum, 10)
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err != nil {
		return fmt.Errorf("protect %s bytes of the containers' memory: %w", value, err)
	}
	return nil
}

// readLimit reads a number of bytes, of which "max" is the highest. A cgroup that has
// been removed has none.
func readLimit(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	word := strings.TrimSpace(string(text))
	if word == "max" {
		return math.MaxUint64, nil
	}
	bytes, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return bytes, nil
}

// fitProtection is called with the limits that the container had and has. It does
// something only if one of them protects memory. A failure is a warning: the limits
// themselves are in force.
func (c *Container) fitProtection(limits ...*cgroups.Resources) {
	for _, r := range limits {
		if !protects(r) {
			continue
		}
		if err := c.protection.fit(); err != nil {
			log.L.WithField("container", c.id).WithError(err).Warn("memory.min and memory.low have no effect when the whole guest is short of memory")
		}
		return
	}
}
