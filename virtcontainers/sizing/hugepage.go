package sizing

import (
	"fmt"
	"os"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/config"
)

// procMeminfo has the size of huge pages (proc_meminfo(5)).
const procMeminfo = "/proc/meminfo"

// hugePageOf returns the size in MiB of the huge pages that the configuration
// requests, which is the host's default size; 0 is none.
func hugePageOf(h config.Hypervisor, meminfo string) (uint64, error) {
	if !h.Memory.HugePages {
		return 0, nil
	}
	text, err := os.ReadFile(meminfo)
	if err != nil {
		return 0, fmt.Errorf("hypervisor.qemu.enable_hugepages: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var kib uint64
		if n, _ := fmt.Sscanf(line, "Hugepagesize: %d kB", &kib); n == 1 && kib >= 1<<10 {
			return kib >> 10, nil
		}
	}
	return 0, fmt.Errorf("hypervisor.qemu.enable_hugepages: the host's kernel has no huge pages (%s): %w", meminfo, errdefs.ErrFailedPrecondition)
}

// wholePages rounds a size up.
func wholePages(mib, page uint64) uint64 {
	if page == 0 {
		return mib
	}
	return (mib + page - 1) / page * page
}

// hugepagesMiB returns how much memory of huge pages the machine may ever have.
func (p *Pod) hugepagesMiB() uint64 {
	if p.hugePageMiB == 0 {
		return 0
	}
	return p.MostMiB()
}

// checkHugepages fails if the whole pod must be in its own cgroup, above which a limit
// allows too few huge pages for that much memory. The kubelet sets one of 0 for each size
// that the pod has not requested (k8s.io/kubernetes pkg/kubelet/cm, maybeSetHugetlb), and
// QEMU would only say that it cannot allocate memory.
//
// QEMU begins in the engine's cgroup for shims, if that is in the hierarchy that counts huge
// pages, and is charged there for the memory that it starts with.
func (p *Pod) checkHugepages(memoryMiB uint64) error {
	if !p.only() || p.hugePageMiB == 0 {
		return nil
	}
	if p.shimCgroup.CountsHugepages() {
		memoryMiB -= min(memoryMiB, p.initial.MemoryMiB)
	}
	if err := p.above.CheckHugepages(memoryMiB); err != nil {
		return fmt.Errorf("hypervisor.qemu.enable_hugepages with runtime.sandbox_cgroup_only: "+
			"set one of them to false, or raise the limit: %w", err)
	}
	return nil
}
