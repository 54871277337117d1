package virtcontainers_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/checkpoint"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// The bound of a restored pod's cgroup has room for the memory that the saved machine
// had been given, before its state is loaded.
func TestRestoredMemoryIsCharged(t *testing.T) {
	host, _ := newCgroupHost(t)
	s := saverOn(t, host, nil, func(o *virtcontainers.Options) {
		o.Config.Hypervisor.MaxMemoryMiB, o.Config.Hypervisor.MemorySlots = 4096, 10
	})
	s.saveAndEnd()
	bound := func(id string, modulesMiB ...uint64) uint64 {
		t.Helper()
		r := s.restoration(id)
		r.dir = t.TempDir()
		rewrite(t, s, r.dir, func(rec *checkpoint.Record) { rec.Machine.Layout.ModulesMiB = modulesMiB })
		r.config.Hypervisor.MaxMemoryMiB, r.config.Hypervisor.MemorySlots = 4096, 10
		if _, err := s.restore(r); err != nil {
			t.Fatal(err)
		}
		rec, err := persist.Load(host.Platform().StateDir(), id)
		if err != nil {
			t.Fatal(err)
		}
		return memoryBound(t, rec.Cgroups)
	}
	if small, large := bound("small"), bound("large", 1024, 512); large < small+1536<<20 {
		t.Errorf("the bound is %d bytes with 1536 MiB more, %d without", large, small)
	}
}

// memoryBound reads the bound of the first cgroup that has one.
func memoryBound(t *testing.T, dirs []string) uint64 {
	t.Helper()
	for _, dir := range dirs {
		for _, name := range []string{"memory.limit_in_bytes", "memory.max"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
				return n
			}
		}
	}
	t.Skip("this host's cgroups have no memory controller")
	return 0
}
