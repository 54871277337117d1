package containerd

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// A small machine grows for a container that may use much memory. The guest's kernel
// describes added memory in what it has: 14 GiB at once would take 224 MiB of its 256,
// with which it panics.
func TestMuchMemory(t *testing.T) {
	needVM(t)
	const gib, limit = 1 << 30, 14
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		t.Fatal(err)
	}
	if total := host.Totalram * uint64(host.Unit) / gib; total <= limit {
		t.Skipf("the host has %d GiB, and no machine may have more than %d", total, limit)
	}
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c, _ := startIdle(ctx, t, d, oci.WithMemoryLimit(limit*gib))
		out := execOut(ctx, t, c, harness.ExecConfig{Args: []string{"awk", "/MemTotal/ { print $2 }", "/proc/meminfo"}})
		if kib, err := strconv.Atoi(strings.TrimSpace(out)); err != nil || kib < limit<<20 {
			t.Errorf("the guest has %q KiB, %v, want %d GiB", out, err, limit)
		}
	})
}
