package hostcgroup

import (
	"path/filepath"
	"testing"
)

// A VM is kept out of a cgroup with too low a limit of threads where they would be
// counted, which is with v2. Plain files stand for the cgroups.
func TestShort(t *testing.T) {
	vm := VM{Memory: 4096, Threads: 100}
	for _, tt := range []struct {
		name    string
		unified bool
		files   map[string]string
		want    Short
	}{
		{"v2 without limits", true, map[string]string{"a/memory.max": "max\n", "a/pids.max": "max\n"}, Short{}},
		{"v2, enough of both", true, map[string]string{"a/memory.max": "4096\n", "a/pids.max": "100\n"}, Short{}},
		{"v2, few threads", true, map[string]string{"a/memory.max": "max\n", "a/pids.max": "99\n"}, Short{Threads: 99}},
		{"v2, few threads further up", true, map[string]string{"pids.max": "50\n", "a/pids.max": "max\n"}, Short{Threads: 50}},
		{"v2, little of both", true, map[string]string{"a/memory.max": "4095\n", "a/pids.max": "99\n"}, Short{Memory: 4095, Threads: 99}},
		{"v2, the pod's own bounds", true, map[string]string{"a/pod/memory.max": "1\n", "a/pod/pids.max": "1\n"}, Short{}},
		{"v1, where threads are not counted", false, map[string]string{"a/pids.max": "99\n"}, Short{}},
	} {
		h := hierarchy{mount: t.TempDir(), unified: tt.unified}
		for name, text := range tt.files {
			writeFile(t, h.dir(name), text)
		}
		limits, err := Above{parents: []parent{{h, filepath.Dir(h.dir("a/pod"))}}}.Limits()
		if got := limits.short(vm, h.unified); got != tt.want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}
