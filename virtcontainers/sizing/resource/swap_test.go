package resource

import (
	"math"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// swapping returns limits of memory, and of memory and swap together; 0 is unset.
func swapping(limit, both int64) *specs.LinuxResources {
	return &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit, Swap: &both}}
}

// named returns r with a limit of swap by the file's name.
func named(r *specs.LinuxResources, swap string) *specs.LinuxResources {
	r.Unified = map[string]string{"memory.swap.max": swap, "memory.high": "1"}
	return r
}

func TestSwapOf(t *testing.T) {
	for name, test := range map[string]struct {
		r    *specs.LinuxResources
		want uint64
	}{
		"nil":                       {nil, NoSwapLimit},
		"nothing":                   {&specs.LinuxResources{}, NoSwapLimit},
		"memory alone":              {memory(100), NoSwapLimit},
		"no swap":                   {swapping(100, 100), 0},
		"swap":                      {swapping(100, 150), 50},
		"less than memory":          {swapping(100, 50), 0},
		"unlimited swap":            {swapping(100, -1), NoSwapLimit},
		"unlimited memory":          {swapping(-1, 100), NoSwapLimit},
		"the kubelet's":             {named(&specs.LinuxResources{}, "0"), 0},
		"by name wins":              {named(swapping(100, 150), "7\n"), 7},
		"by name, none":             {named(swapping(100, 100), "max"), NoSwapLimit},
		"by name, with a unit":      {named(swapping(100, 100), "3m"), 3 << 20},
		"by name, too large a unit": {named(swapping(100, 100), "99E"), NoSwapLimit},
		"by name, empty":            {named(swapping(100, 100), ""), NoSwapLimit},
		"another name":              {&specs.LinuxResources{Unified: map[string]string{"memory.max": "1"}}, NoSwapLimit},
	} {
		p, err := PlaceOf(test.r)
		if err != nil || p.Swap != test.want {
			t.Errorf("%s: %s bytes of swap, want %s", name, SwapText(p.Swap), SwapText(test.want))
		}
	}
}

// A pod may swap what its containers may; one that is not limited is not.
func TestSwapTogether(t *testing.T) {
	const none = NoSwapLimit
	for name, test := range map[string]struct {
		own        Place
		containers []Place
		want       uint64
	}{
		"no container":         {want: 0},
		"a pause":              {own: Place{Swap: none}.OfPause(), want: 0},
		"a pause and no swap":  {Place{Swap: none}.OfPause(), []Place{{Swap: 0}, {Swap: 0}}, 0},
		"a sum":                {Place{Swap: none}.OfPause(), []Place{{Swap: 5}, {Swap: 0}, {Swap: 6}}, 11},
		"one without a limit":  {Place{Swap: none}.OfPause(), []Place{{Swap: 0}, {Swap: none}}, none},
		"two without a limit":  {Place{}, []Place{{Swap: none}, {Swap: none}}, none},
		"a container alone":    {own: Place{Swap: 3}, want: 3},
		"more than can be had": {Place{}, []Place{{Swap: math.MaxUint64 - 1}, {Swap: 2}}, none},
	} {
		if got := Together(test.own, test.containers...).Swap; got != test.want {
			t.Errorf("%s: %s bytes, want %s", name, SwapText(got), SwapText(test.want))
		}
	}
}

// An update changes the limit as it does in the guest (agent/container/update.go).
func TestSwapAfterUpdate(t *testing.T) {
	for name, test := range map[string]struct {
		old, update *specs.LinuxResources
		want        uint64
	}{
		"nothing":                {swapping(100, 100), &specs.LinuxResources{}, 0},
		"of something else":      {named(memory(100), "0"), memory(200), 0},
		"zero":                   {swapping(100, 100), swapping(200, 0), 0},
		"of both":                {swapping(100, 100), swapping(200, 250), 50},
		"of both, named before":  {named(memory(100), "0"), swapping(200, 250), 50},
		"by name":                {swapping(100, 100), named(&specs.LinuxResources{}, "9"), 9},
		"memory without a limit": {swapping(100, 100), memory(-1), NoSwapLimit},
	} {
		p, err := PlaceOf(Updated(test.old, test.update))
		if err != nil || p.Swap != test.want {
			t.Errorf("%s: %s bytes of swap, want %s, %v", name, SwapText(p.Swap), SwapText(test.want), err)
		}
	}
}
