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
		if err := p.newLookout().follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p.chargedToPod(t, cgroup) != test.inside {
			t.Errorf("with a limit of %d MiB a machine of 2048 MiB is charged to the pod: %v, want %v", test.mib, !test.inside, test.inside)
		}
	}
}

// A machine has its bound also when the pod's limits cannot be read. Its place does not
// depend on them if the whole pod is in its own cgroup.
func TestMachineUnderUnreadLimit(t *testing.T) {
	cgroup := limitedCgroup(t, 4001)
	p, _ := chargedPod(t, cgroup)
	unreadable(t, cgroup)
	for _, only := range []bool{false, true} {
		p.opts.Config.Runtime.SandboxCgroupOnly = only
		p.bounded = 1
		if err := p.chargeVM(t.Context(), p.memoryMiB); (err == nil) != only {
			t.Errorf("only its own cgroup: %v: %v", only, err)
		}
		if p.bounded>>20 < p.memoryMiB {
			t.Errorf("only its own cgroup: %v: the bound is %d MiB", only, p.bounded>>20)
		}
		if charged := p.chargedMiB == p.memoryMiB; charged != only {
			t.Errorf("only its own cgroup: %v: charged for %d MiB", only, p.chargedMiB)
		}
	}
}

// A machine that could not be charged while the limits could not be read is charged when
// they are as before.
func TestUnchargedMachineIsChargedLater(t *testing.T) {
	cgroup := limitedCgroup(t, 4002)
	p, _ := chargedPod(t, cgroup)
	l := p.newLookout()
	mend := unreadable(t, cgroup)
	if err := p.ChargeCPUs(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.chargeRest(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.chargedMiB == p.memoryMiB {
		t.Fatal("charged under limits that cannot be read")
	}
	select {
	case <-p.smaller:
	default:
		t.Error("nothing tries again")
	}
	if err := l.follow(t.Context()); err == nil {
		t.Error("followed limits that cannot be read")
	}
	mend()
	if err := l.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.chargedMiB != p.memoryMiB {
		t.Errorf("charged for %d MiB, want %d", p.chargedMiB, p.memoryMiB)
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
