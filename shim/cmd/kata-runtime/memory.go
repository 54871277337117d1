package main

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"

	"github.com/katabox/katabox/virtcontainers/config"
)

// checkMemory checks whether the host has the memory for one guest of the
// configuration's size.
func (h host) checkMemory(cfg *config.Config) result {
	memory := cfg.Hypervisor.Memory
	if memory.HugePages {
		return h.checkHugePages(cfg.Hypervisor.MemoryMiB)
	}
	r := result{Name: "memory", Status: ok}
	if dir := memory.Dir; dir != "" {
		if info, err := h.stat(dir); err != nil || !info.IsDir() {
			r.Status, r.Found, r.Means = missing, dir+" is missing, or not a directory", "no guest gets its memory"
			r.Do = "mkdir " + dir + ", or correct hypervisor.qemu.file_mem_backend"
			return r
		}
	}
	available, err := h.meminfo("MemAvailable")
	if err != nil {
		r.Status, r.Found = warning, err.Error()
		r.Means = "it is unknown whether a guest fits"
		return r
	}
	wanted := cfg.Hypervisor.MemoryMiB
	available >>= 10
	r.Found = fmt.Sprintf("%d MiB available, default_memory is %d MiB", available, wanted)
	if available < wanted {
		r.Status, r.Means = warning, "a guest takes memory as it uses it: a guest that uses all of its memory runs into the host's OOM killer"
		r.Do = "lower hypervisor.qemu.default_memory (256 at least)"
	}
	return r
}

// checkHugePages counts the huge pages of the default size.
func (h host) checkHugePages(wantedMiB uint64) result {
	r := result{Name: "memory", Status: ok}
	var counts [4]uint64
	for i, name := range []string{"Hugepagesize", "HugePages_Total", "HugePages_Free", "HugePages_Rsvd"} {
		n, err := h.meminfo(name)
		if err != nil || i == 0 && n == 0 {
			r.Status, r.Found, r.Means = missing, "the kernel has no huge pages", "no guest gets its memory: enable_hugepages is set"
			r.Do = "set hypervisor.qemu.enable_hugepages = false"
			return r
		}
		counts[i] = n
	}
	kib, total, free := counts[0], counts[1], counts[2]-min(counts[3], counts[2])
	wanted := (wantedMiB<<10 + kib - 1) / kib
	r.Found = fmt.Sprintf("%d huge pages of %d KiB free, default_memory is %d of them", free, kib, wanted)
	if free < wanted {
		r.Status, r.Means = missing, "no guest gets its memory: enable_hugepages is set"
		r.Do = fmt.Sprintf("sysctl vm.nr_hugepages=%d, and as many more for each further pod", total+wanted-free)
	}
	return r
}

// checkEntropy checks the file from which guests get random numbers.
func (h host) checkEntropy(cfg *config.Config) result {
	source := cfg.Hypervisor.EntropySource
	r := result{Name: "entropy source", Status: ok, Found: source}
	if _, err := h.stat(source); err != nil {
		r.Status, r.Found, r.Means = missing, err.Error(), "no guest can boot"
		r.Do = "correct hypervisor.qemu.entropy_source"
	}
	return r
}

// meminfo returns a line of /proc/meminfo, in KiB if it has a unit.
func (h host) meminfo(name string) (uint64, error) {
	f, err := h.open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != name+":" {
			continue
		}
		n, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s of /proc/meminfo: %w", name, err)
		}
		return n, nil
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s", name)
}
