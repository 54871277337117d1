package sizing

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A machine for which a lowered limit leaves no room is no longer charged to the pod,
// where the host would kill it, and is again when there is room.
func TestMachineFollowsTheLimit(t *testing.T) {
	cgroup := limitedCgroup(t, 4000)
	p, _ := chargedPod(t, cgroup)
	for _, test := range []struct {
		mib    int
		inside bool
	}{{4000, true}, {2000, false}, {3000, true}} {
		setLimit(t, cgroup, test.mib)
		if err := p.follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p.chargedToPod(t, cgroup) != test.inside {
			t.Errorf("with a limit of %d MiB a machine of 2048 MiB is charged to the pod: %v, want %v", test.mib, !test.inside, test.inside)
		}
	}
}

// chargedToPod reports whether the machine's memory is charged below the parent of
// that cgroup.
func (p *Pod) chargedToPod(t *testing.T, cgroup string) bool {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.vm.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name := strings.SplitN(line, ":", 3)
		if name[1] == "memory" || name[1] == "" && !strings.Contains(string(text), ":memory:") {
			return strings.HasPrefix(name[2], filepath.Dir(cgroup)+"/")
		}
	}
	return false
}
