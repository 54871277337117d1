package procstat

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestMemoryNames(t *testing.T) {
	for name, want := range map[string]string{
		"MemTotal": "mem_total", "Active(anon)": "active_anon", "SReclaimable": "s_reclaimable", "HugePages_Rsvd": "hugepages_rsvd",
		"AnonHugePages": "anon_hugepages", "DirectMap4k": "direct_map_4k", "NFS_Unstable": "nfs_unstable", "Committed_AS": "committed_as",
		"Percpu": "per_cpu", "KernelStack": "kernel_stack", "Hugepagesize": "hugepagesize", "ShmemPmdMapped": "shmem_pmd_mapped",
	} {
		if got := memoryName(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestSystem(t *testing.T) {
	checks := []struct {
		what string
		got  []Item
		want []Item
	}{
		{"stat", CPUs([]byte("cpu  1 2 3\ncpu0 4 5 6\nintr 7 8\n")), []Item{
			{"total", "user", 1}, {"total", "nice", 2}, {"total", "system", 3}, {"0", "user", 4}, {"0", "nice", 5}, {"0", "system", 6},
		}},
		{"meminfo", Memory([]byte("MemTotal:       2 kB\nHugePages_Total:   3\nBad\nMemFree: -1 kB\n")), []Item{{"", "mem_total", 2048}, {"", "hugepages_total", 3}}},
		{"vmstat", VM([]byte("nr_free_pages 5\nx y\n{evil=\"} 1\n")), []Item{{"", "nr_free_pages", 5}}},
		{"diskstats", Disks([]byte(" 254 0 vda 1 2\n7 0 x\" 9\n")), []Item{{"vda", "reads", 1}, {"vda", "merged", 2}}},
		{"net/dev", Interfaces([]byte("Inter-| Receive\n face |bytes\n  eth0: 1 2\n")), []Item{{"eth0", "recv_bytes", 1}, {"eth0", "recv_packets", 2}}},
	}
	for _, c := range checks {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", c.what, diff)
		}
	}
	load, tasks := Load([]byte("0.5 1 2 3/40 99\n"))
	if Find(load, "load1") != 0.5 || Find(load, "load15") != 2 || Find(tasks, "cur") != 3 || Find(tasks, "max") != 40 {
		t.Errorf("%v, %v", load, tasks)
	}
}

// This kernel's files can be parsed.
func TestThisHost(t *testing.T) {
	for file, read := range map[string]func([]byte) []Item{"stat": CPUs, "meminfo": Memory, "vmstat": VM, "net/dev": Interfaces} {
		data, err := os.ReadFile("/proc/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if len(read(data)) < 16 {
			t.Errorf("%s: %v", file, read(data))
		}
	}
	p, err := OfProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Stat) != 4 || Find(p.Status, "vmrss") == 0 || Find(p.IO, "rchar") == 0 || p.Threads == 0 || p.FDs < 3 {
		t.Errorf("%+v", p)
	}
	if _, err := OfProcess(1 << 30); err == nil {
		t.Error("a process that is not there was read")
	}
}

func TestCommandMayHoldAnything(t *testing.T) {
	p := ParseProcess([]byte("7 (a) b) 9) S"+strings.Repeat(" 1", 10)+" 5 6 7 8 0 0 3 0"), nil, nil, 0)
	if Find(p.Stat, "utime") != 5 || Find(p.Stat, "cstime") != 8 || p.Threads != 3 {
		t.Errorf("%+v", p)
	}
}

// What a guest sends is bounded, and valid in labels.
func FuzzFiles(f *testing.F) {
	for _, file := range []string{"stat", "loadavg", "meminfo", "vmstat", "diskstats", "net/dev", "self/stat", "self/status", "self/io"} {
		data, _ := os.ReadFile("/proc/" + file)
		f.Add(data)
	}
	f.Add([]byte("1 (" + strings.Repeat(") 1", 100)))
	f.Fuzz(func(t *testing.T, data []byte) {
		load, tasks := Load(data)
		p := ParseProcess(data, data, data, 0)
		for _, items := range [][]Item{CPUs(data), Memory(data), VM(data), Disks(data), Interfaces(data), load, tasks, p.Stat, p.Status, p.IO} {
			if len(items) > maxItems {
				t.Fatalf("%d items", len(items))
			}
			for _, item := range items {
				if len(item.Name) > maxName || len(item.Device) > maxName || !(item.Value >= 0) || item.Value > 1e308*1.7 ||
					!utf8.ValidString(item.Name+item.Device) || strings.ContainsAny(item.Name+item.Device, "\"\\\n{} ") {
					t.Fatalf("%+v", item)
				}
			}
		}
	})
}
