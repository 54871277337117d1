package sizing

import (
	"fmt"
	"os"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/config"
)

// ExplainLaunch adds the configuration key to an error that may be due to huge
// pages.
func (p *Pod) ExplainLaunch(err error) error {
	if p.hugePageMiB != 0 && errdefs.IsResourceExhausted(err) {
		return fmt.Errorf("hypervisor.qemu.enable_hugepages: %w", err)
	}
	return err
}

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
