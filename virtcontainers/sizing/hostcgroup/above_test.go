package hostcgroup

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// The limits for the machine are the least of all cgroups above, those for the
// containers the parent's. Each change makes others of them.
func TestLimits(t *testing.T) {
	v2 := hierarchy{mount: t.TempDir(), unified: true}
	memory := hierarchy{mount: t.TempDir(), controllers: []string{"memory"}}
	pids := hierarchy{mount: t.TempDir(), controllers: []string{"pids"}}
	for file, text := range map[string]string{
		"a/memory.max": "max", "a/memory.high": "4096", "a/pids.max": "50",
		"a/b/memory.max": "8192", "a/b/memory.high": "max", "a/b/pids.max": "max",
	} {
		writeFile(t, v2.dir(file), text+"\n")
	}
	writeFile(t, memory.dir("memory.limit_in_bytes"), "9223372036854771712\n")
	writeFile(t, memory.dir("a/memory.limit_in_bytes"), "4096\n")
	writeFile(t, memory.dir("a/b/memory.limit_in_bytes"), "9223372036854771712\n")
	writeFile(t, pids.dir("a/b/pids.max"), "60\n")
	for name, test := range map[string]struct {
		above Above
		want  Limits
	}{
		"v2":         {Above{parents: []parent{{v2, v2.dir("a/b")}}}, Limits{4096, 50, 8192, NoLimit, NoLimit}},
		"v1":         {Above{parents: []parent{{memory, memory.dir("a/b")}, {pids, pids.dir("a/b")}}}, Limits{4096, 60, NoLimit, 60, NoLimit}},
		"v1, a part": {Above{parents: []parent{{pids, pids.dir("a/b")}}}, Limits{NoLimit, 60, NoLimit, 60, NoLimit}},
		"none":       {Above{}, Limits{NoLimit, NoLimit, NoLimit, NoLimit, NoLimit}},
	} {
		if got, err := test.above.Limits(); got != test.want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		}
	}
	writeFile(t, v2.dir("a/pids.max"), "many\n")
	if got, err := (Above{parents: []parent{{v2, v2.dir("a/b")}}}).Limits(); err == nil || got != (Limits{}) || !strings.Contains(err.Error(), "a/pids.max") {
		t.Errorf("a limit that is not a number: %+v, %v", got, err)
	}
}

func TestOpenAbove(t *testing.T) {
	if a, err := OpenAbove(t.TempDir(), "", 0); a.Any() || err != nil {
		t.Errorf("without a cgroup: %+v, %v", a, err)
	}
	if a, err := OpenAbove(t.TempDir(), "/pods/c", 2); a.Any() || err == nil {
		t.Errorf("on a host without cgroups: %+v, %v", a, err)
	}
}

// An error names the least limit of huge pages, also of one above the parent, and with v1.
func TestCheckHugepages(t *testing.T) {
	v2 := hierarchy{mount: t.TempDir(), unified: true}
	writeFile(t, v2.dir("a/hugetlb.2MB.rsvd.max"), "4194304\n")
	writeFile(t, v2.dir("a/b/hugetlb.2MB.max"), "max\n")
	v1 := hierarchy{mount: t.TempDir(), controllers: []string{"hugetlb"}}
	writeFile(t, v1.dir("a/b/hugetlb.2MB.limit_in_bytes"), "0\n")
	memory := hierarchy{mount: t.TempDir(), controllers: []string{"memory"}}
	for name, test := range map[string]struct {
		above Above
		mib   uint64
		file  string // of the error; empty for none
	}{
		"as much as the limit": {Above{[]parent{{v2, v2.dir("a/b")}}, "2MB"}, 4, ""},
		"more":                 {Above{[]parent{{v2, v2.dir("a/b")}}, "2MB"}, 6, "a/hugetlb.2MB.rsvd.max"},
		"another size":         {Above{[]parent{{v2, v2.dir("a/b")}}, "1GB"}, 1024, ""},
		"v1":                   {Above{[]parent{{memory, memory.dir("a/b")}, {v1, v1.dir("a/b")}}, "2MB"}, 2, "a/b/hugetlb.2MB.limit_in_bytes"},
	} {
		err := test.above.CheckHugepages(test.mib)
		if test.file == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), test.file) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for mib, want := range map[uint64]string{0: "", 2: "2MB", 512: "512MB", 1024: "1GB", 16384: "16GB"} {
		if got := hugepageSize(mib); got != want {
			t.Errorf("%d MiB: %q, want %q", mib, got, want)
		}
	}
}
