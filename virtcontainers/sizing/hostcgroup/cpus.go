package hostcgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// SetPlace gives the pod's own cgroup its CPUs, memory nodes and weight, and
// the overhead the same weight, since it works for the pod too; and limits the swap
// of both. If the place
// names no CPUs, or no nodes, the cgroup gets its parent's. The error joins
// what the kernel refused, such as CPUs that the parent lacks (v1), and is of
// kind errdefs.ErrNotFound if the host has no controller for a value; the rest
// is still set.
func (c *Cgroup) SetPlace(want resource.Place) error {
	var (
		errs  []error
		found bool
	)
	for _, p := range c.places {
		if p.pod == "" {
			continue
		}
		if p.hasFile("cpuset.cpus") {
			found = true
			errs = append(errs, p.setSet("cpuset.mems", want.Mems), p.setSet("cpuset.cpus", want.CPUs))
		}
		errs = append(errs, p.setWeight(p.pod, want.Shares), p.limitSwap(want.Swap))
		if p.overhead != "" {
			errs = append(errs, p.weighOverhead(want.Shares))
		}
	}
	if !found && want.CPUs.Count()+want.Mems.Count() > 0 {
		errs = append(errs, fmt.Errorf("set CPUs %q and memory nodes %q of cgroup %s: it has no cpuset controller: %w",
			want.CPUs, want.Mems, c.path, errdefs.ErrNotFound))
	}
	return errors.Join(errs...)
}

// hasFile reports whether the pod's cgroup has a controller's file.
func (p place) hasFile(name string) bool {
	_, err := os.Stat(filepath.Join(p.pod, name))
	return err == nil
}

// setSet writes a set into a file of the pod's cgroup. For an empty set v2 uses
// the parent's (the kernel's Documentation/admin-guide/cgroup-v2.rst); v1
// refuses an empty set while the cgroup has processes (cpusets.rst).
func (p place) setSet(name string, want resource.CPUSet) error {
	value := want.String()
	if value == "" && !p.unified {
		parents, err := os.ReadFile(filepath.Join(filepath.Dir(p.pod), name))
		if err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		value = strings.TrimSpace(string(parents))
	}
	if err := write(filepath.Join(p.pod, name), value+"\n"); err != nil {
		return fmt.Errorf("set %s to %q: %w", name, value, err)
	}
	return nil
}

// setWeight writes CPU shares, if the hierarchy controls CPU time.
func (h hierarchy) setWeight(dir string, shares uint64) error {
	name, value := h.weightFile(), shares
	if h.unified {
		value = weight(shares)
	}
	err := write(filepath.Join(dir, name), strconv.FormatUint(value, 10))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("set %s to %d: %w", name, value, err)
	}
	return nil
}

// weightFile returns the name of the file with a cgroup's CPU weight.
func (h hierarchy) weightFile() string {
	if h.unified {
		return "cpu.weight"
	}
	return "cpu.shares"
}

// weight converts v1's shares to cgroup v2's weight, as runc does since 1.3.2
// (github.com/opencontainers/cgroups, ConvertCPUSharesToCgroupV2Value): a
// parabola of logarithms through both scales' least, default and largest
// values.
func weight(shares uint64) uint64 {
	const least, most = 1, 10000
	switch {
	case shares <= resource.MinShares:
		return least
	case shares >= resource.MaxShares:
		return most
	}
	l := math.Log2(float64(shares))
	return uint64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}
