package guestspec

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// ownNamespaces are those of a container that requests none of the host's.
var ownNamespaces = []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
	{Type: specs.NetworkNamespace}, {Type: specs.MountNamespace}}

// filtered returns what a guest gets of a spec.
func filtered(t *testing.T, spec *specs.Spec, rules Rules) (*specs.Linux, *Guest) {
	t.Helper()
	return filteredWith(t, spec, Paths{}, rules)
}

func filteredWith(t *testing.T, spec *specs.Spec, paths Paths, rules Rules) (*specs.Linux, *Guest) {
	t.Helper()
	g, err := Filter(spec, paths, rules)
	if err != nil {
		t.Fatal(err)
	}
	var got specs.Spec
	if err := json.Unmarshal(g.JSON, &got); err != nil {
		t.Fatal(err)
	}
	return got.Linux, g
}

func TestFilterResources(t *testing.T) {
	throttle := []specs.LinuxThrottleDevice{{Rate: 1}}
	spec := &specs.Spec{Root: &specs.Root{}, Process: &specs.Process{}, Linux: &specs.Linux{Namespaces: ownNamespaces, Resources: &specs.LinuxResources{
		CPU: &specs.LinuxCPU{
			Shares: ptr(uint64(2)), Burst: ptr(uint64(3)), Idle: ptr(int64(1)),
			Cpus: "0-3", Mems: "0", RealtimePeriod: ptr(uint64(1)), RealtimeRuntime: ptr(int64(1)),
		},
		Memory:         &specs.LinuxMemory{Swap: ptr(int64(5)), Reservation: ptr(int64(4)), Swappiness: ptr(uint64(60))},
		HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 7}},
		BlockIO:        &specs.LinuxBlockIO{Weight: ptr(uint16(9)), LeafWeight: ptr(uint16(9)), ThrottleWriteIOPSDevice: throttle},
		Network:        &specs.LinuxNetwork{ClassID: ptr(uint32(1))},
		Rdma:           map[string]specs.LinuxRdma{"mlx5_0": {}},
		Unified:        map[string]string{"memory.high": "8"},
	}}}
	want := &specs.LinuxResources{
		CPU:            &specs.LinuxCPU{Shares: ptr(uint64(2)), Burst: ptr(uint64(3)), Idle: ptr(int64(1))},
		Memory:         &specs.LinuxMemory{Swap: ptr(int64(5)), Reservation: ptr(int64(4))},
		HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 7}},
		BlockIO:        &specs.LinuxBlockIO{Weight: ptr(uint16(9))},
		Unified:        map[string]string{"memory.high": "8"},
	}
	got, g := filtered(t, spec, Rules{})
	if diff := cmp.Diff(want, got.Resources); diff != "" {
		t.Error(diff)
	}
	words := []string{
		"class and priorities of network traffic", "limits of RDMA", "CPU time of real-time processes",
		"swappiness", "weights and limits of single block devices", "the leaf weight of block I/O",
	}
	if diff := cmp.Diff(words, g.Dropped); diff != "" {
		t.Error(diff)
	}
}

// Dropping what engines send for "not set" is not reported.
func TestFilterResourcesWithoutALoss(t *testing.T) {
	spec := &specs.Spec{Root: &specs.Root{}, Process: &specs.Process{}, Linux: &specs.Linux{Namespaces: ownNamespaces, Resources: &specs.LinuxResources{
		CPU:     &specs.LinuxCPU{Cpus: "0", RealtimePeriod: ptr(uint64(0)), RealtimeRuntime: ptr(int64(0))},
		Network: &specs.LinuxNetwork{ClassID: ptr(uint32(0))}, BlockIO: &specs.LinuxBlockIO{Weight: ptr(uint16(0)), LeafWeight: ptr(uint16(0))},
		Memory: &specs.LinuxMemory{Swappiness: ptr(uint64(math.MaxUint64)), DisableOOMKiller: ptr(false), Kernel: ptr(int64(-1))},
	}}}
	if _, g := filtered(t, spec, Rules{}); len(g.Dropped) > 0 {
		t.Errorf("dropped %q", g.Dropped)
	}
}

func TestFilterSeccomp(t *testing.T) {
	profile := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno}
	for _, test := range []struct {
		profile         *specs.LinuxSeccomp
		off, unconfined bool
	}{
		{profile, false, false}, {profile, true, true}, {nil, true, false}, {nil, false, false},
	} {
		spec := &specs.Spec{Root: &specs.Root{}, Process: &specs.Process{}, Linux: &specs.Linux{Namespaces: ownNamespaces, Seccomp: test.profile}}
		got, g := filtered(t, spec, Rules{NoSeccomp: test.off})
		if (got.Seccomp != nil) != (test.profile != nil && !test.off) || g.Unconfined != test.unconfined {
			t.Errorf("profile %v, off: %v: the guest's is %v, unconfined: %v", test.profile, test.off, got.Seccomp, g.Unconfined)
		}
	}
}
