package resource

import (
	"math"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// place returns a container's place, which must be valid; empty lists are
// unset.
func place(t *testing.T, cpus, mems string, shares uint64) Place {
	t.Helper()
	p, err := PlaceOf(&specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: cpus, Mems: mems, Shares: &shares}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTogether(t *testing.T) {
	tests := []struct {
		name       string
		own        Place
		containers []Place
		cpus, mems string
		shares     uint64
	}{
		{name: "nothing", shares: 1024},
		{name: "one alone", own: place(t, "1-3", "0", 512), cpus: "1-3", mems: "0", shares: 512},
		{name: "one alone with the least shares", own: place(t, "", "", 2), shares: 2},
		{name: "a pause beside nothing", own: place(t, "3", "", 2).OfPause(), cpus: "3", shares: 1024},
		{name: "a pause that asks for shares", own: place(t, "", "", 100).OfPause(), containers: []Place{place(t, "", "", 5)}, shares: 105},
		{name: "a pause does not widen the set", own: place(t, "", "", 2).OfPause(),
			containers: []Place{place(t, "0", "0", 100), place(t, "1,2", "1", 200)}, cpus: "0-2", mems: "0-1", shares: 300},
		{name: "a pause beside the least", own: place(t, "", "", 2).OfPause(), containers: []Place{place(t, "", "", 2)}, shares: 2},
		{name: "a container with a set beside another", own: place(t, "7", "", 0), containers: []Place{place(t, "0", "", 1)}, cpus: "0,7", shares: 2},
		{name: "a pause with a set", own: place(t, "7", "1", 2).OfPause(), cpus: "7", mems: "1", shares: 1024},
		{name: "its set beside a container's", own: place(t, "7", "1", 2).OfPause(), containers: []Place{place(t, "0", "0", 1)},
			cpus: "0", mems: "0", shares: 2},
		{name: "one that may run anywhere", containers: []Place{place(t, "0", "0", 1), place(t, "", "1", 1)}, mems: "0-1", shares: 2},
		{name: "and one that may have memory anywhere", containers: []Place{place(t, "0", "0", 5), place(t, "2", "", 5)}, cpus: "0,2", shares: 10},
		{name: "one without shares", containers: []Place{place(t, "", "", 0), place(t, "", "", 100)}, shares: 1124},
		{name: "too few shares", containers: []Place{place(t, "", "", 1)}, shares: 2},
		{name: "too many", containers: []Place{place(t, "", "", math.MaxUint64), place(t, "", "", math.MaxUint64)}, shares: 262144},
	}
	for _, test := range tests {
		got := Together(test.own, test.containers...)
		if got.CPUs.String() != test.cpus || got.Mems.String() != test.mems || got.Shares != test.shares {
			t.Errorf("%s: CPUs %q, nodes %q, shares %d, want %q, %q, %d",
				test.name, got.CPUs, got.Mems, got.Shares, test.cpus, test.mems, test.shares)
		}
	}
}

func TestPlaceOf(t *testing.T) {
	for what, r := range map[string]*specs.LinuxResources{"nil": nil, "no CPU": {}, "nothing": {CPU: &specs.LinuxCPU{}}} {
		if p, err := PlaceOf(r); err != nil || p.CPUs.Count()+p.Mems.Count() != 0 || p.Shares != 0 {
			t.Errorf("%s: %v, %v", what, p, err)
		}
	}
	for want, c := range map[string]specs.LinuxCPU{
		`cpuset "0-": "0-": want a number below 8192, or two with a hyphen: invalid argument`:       {Cpus: "0-"},
		`memory nodes "0,x": "x": want a number below 8192, or two with a hyphen: invalid argument`: {Cpus: "0", Mems: "0,x"},
	} {
		if _, err := PlaceOf(&specs.LinuxResources{CPU: &c}); !errdefs.IsInvalidArgument(err) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestCPUSetText(t *testing.T) {
	for list, want := range map[string]string{
		"0": "0", "0,1": "0-1", "3,1-2,0": "0-3", "0,2-2,4-6,8191\n": "0,2,4-6,8191", "62-65,127-128": "62-65,127-128",
	} {
		set, err := ParseCPUSet(list)
		if err != nil {
			t.Fatal(err)
		}
		if set.String() != want {
			t.Errorf("%q is %q, want %q", list, set, want)
		}
		if all := slices.Collect(set.All()); len(all) != set.Count() || !slices.IsSorted(all) {
			t.Errorf("%q has %v, %d of them", list, all, set.Count())
		}
	}
	if s := CPUSet(nil).String(); s != "" {
		t.Errorf("nothing is %q", s)
	}
	for range (CPUSet{3}).All() {
		break // it may be left early
	}
}

// A parsed set is printed so that it parses to an equal set.
func FuzzCPUSet(f *testing.F) {
	for _, list := range []string{"0", "0-2,7", "8191", "5,1-3", "1-", ",", " 0\n", "63-64"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		set, err := ParseCPUSet(list)
		if err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("%q: %v", list, err)
			}
			return
		}
		again, err := ParseCPUSet(set.String())
		if err != nil || !slices.Equal(set, again) || set.Count() == 0 {
			t.Errorf("%q is written %q: %v", list, set, err)
		}
	})
}
