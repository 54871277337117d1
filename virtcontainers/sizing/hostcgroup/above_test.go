package hostcgroup

import (
	"strings"
	"testing"
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
		"v2":         {Above{[]parent{{v2, v2.dir("a/b")}}}, Limits{4096, 50, 8192, NoLimit}},
		"v1":         {Above{[]parent{{memory, memory.dir("a/b")}, {pids, pids.dir("a/b")}}}, Limits{4096, 60, NoLimit, 60}},
		"v1, a part": {Above{[]parent{{pids, pids.dir("a/b")}}}, Limits{NoLimit, 60, NoLimit, 60}},
		"none":       {Above{}, Limits{NoLimit, NoLimit, NoLimit, NoLimit}},
	} {
		if got, err := test.above.Limits(); got != test.want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		}
	}
	writeFile(t, v2.dir("a/pids.max"), "many\n")
	if got, err := (Above{[]parent{{v2, v2.dir("a/b")}}}).Limits(); err == nil || got != (Limits{}) || !strings.Contains(err.Error(), "a/pids.max") {
		t.Errorf("a limit that is not a number: %+v, %v", got, err)
	}
}

func TestOpenAbove(t *testing.T) {
	if a, err := OpenAbove(t.TempDir(), ""); a.Any() || err != nil {
		t.Errorf("without a cgroup: %+v, %v", a, err)
	}
	if a, err := OpenAbove(t.TempDir(), "/pods/c"); a.Any() || err == nil {
		t.Errorf("on a host without cgroups: %+v, %v", a, err)
	}
}
