package resource

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// needs returns the needs of containers, whose limits must be valid.
func needs(t *testing.T, limits ...*specs.LinuxResources) []Need {
	t.Helper()
	var all []Need
	for _, r := range limits {
		n, err := OfContainer(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

func TestSize(t *testing.T) {
	const giB = 1 << 30
	one := Machine{VCPUs: 1, MaxVCPUs: 8, MemoryMiB: 2048, MaxMemoryMiB: 8192}
	half := Machine{VCPUs: 0.5, MaxVCPUs: 8, MemoryMiB: 300, MaxMemoryMiB: 8192}
	tests := []struct {
		name    string
		machine Machine
		limits  []*specs.LinuxResources
		want    Size
	}{
		{"nothing", one, nil, Size{VCPUs: 1, MemoryMiB: 2048}},
		{"without limits", one, []*specs.LinuxResources{nil, {}}, Size{VCPUs: 1, MemoryMiB: 2048}},
		{"half a CPU", half, nil, Size{VCPUs: 1, MemoryMiB: 300}},
		{"halves are rounded once", half, []*specs.LinuxResources{cpu(50, 100, ""), cpu(50, 100, ""), cpu(50, 100, "")}, Size{VCPUs: 2, MemoryMiB: 300}},
		{"tenths", Machine{VCPUs: 0.1, MaxVCPUs: 8}, []*specs.LinuxResources{cpu(2, 10, ""), cpu(7, 10, "")}, Size{VCPUs: 1}},
		{"thirds", one, []*specs.LinuxResources{cpu(2, 3, ""), cpu(2, 3, ""), cpu(2, 3, "")}, Size{VCPUs: 3, MemoryMiB: 2048}},
		{"pinned to the same CPUs", one, []*specs.LinuxResources{cpu(-1, 0, "0-1"), cpu(-1, 0, "1-2"), cpu(100, 100, "0-7")}, Size{VCPUs: 5, MemoryMiB: 2048}},
		{"a byte is a block", one, []*specs.LinuxResources{memory(1)}, Size{VCPUs: 1, MemoryMiB: 2176}},
		{"bytes are rounded once", half, []*specs.LinuxResources{memory(64 << 20), memory(64 << 20)}, Size{VCPUs: 1, MemoryMiB: 428}},
		{"up to the most", one, []*specs.LinuxResources{cpu(700, 100, ""), memory(6 * giB)}, Size{VCPUs: 8, MemoryMiB: 8192}},
		{"beyond the most", one, []*specs.LinuxResources{cpu(701, 100, ""), memory(6*giB + 1)}, Size{VCPUs: 8, MemoryMiB: 8192, Notes: []string{
			"9 vCPUs are needed and there can be 8", "8320 MiB of memory are needed and there can be 8192"}}},
		{"the most is not a whole block", Machine{VCPUs: 1, MaxVCPUs: 1, MemoryMiB: 300, MaxMemoryMiB: 556}, []*specs.LinuxResources{memory(giB)},
			Size{VCPUs: 1, MemoryMiB: 556, Notes: []string{"1324 MiB of memory are needed and there can be 556"}}},
		{"cannot grow", Machine{VCPUs: 1, MaxVCPUs: 1, MemoryMiB: 300, MaxMemoryMiB: 200}, []*specs.LinuxResources{memory(1)},
			Size{VCPUs: 1, MemoryMiB: 300, Notes: []string{"428 MiB of memory are needed and there can be 300"}}},
		{"overflow", one, []*specs.LinuxResources{cpu(math.MaxInt64, 1, ""), cpu(math.MaxInt64, 1, ""), memory(math.MaxInt64 - 5000), memory(math.MaxInt64 - 5000), memory(math.MaxInt64 - 5000)},
			Size{VCPUs: 8, MemoryMiB: 8192, Notes: []string{
				"18446744073710 vCPUs are needed and there can be 8", "17592186046464 MiB of memory are needed and there can be 8192"}}},
		{"absurd defaults", Machine{VCPUs: math.Inf(1), MemoryMiB: 1}, nil, Size{VCPUs: 1, MemoryMiB: 1, Notes: []string{
			"18446744073710 vCPUs are needed and there can be 1"}}},
		{"no defaults", Machine{VCPUs: math.NaN(), MaxVCPUs: 2}, nil, Size{VCPUs: 1}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, test.machine.Size(needs(t, test.limits...)...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// Another container never makes a machine smaller, and no machine is smaller
// than its defaults or larger than its limits.
func FuzzSize(f *testing.F) {
	f.Add(1.0, uint16(4), uint32(2048), uint32(4096), int64(100), uint64(100), "", int64(1<<30), int64(50), uint64(0), "0-3", int64(-1))
	f.Add(0.5, uint16(0), uint32(256), uint32(0), int64(-1), uint64(0), "1", int64(math.MaxInt64), int64(math.MaxInt64), uint64(1), "", int64(math.MaxInt64-5000))
	f.Fuzz(func(t *testing.T, vcpus float64, most uint16, mem, maxMem uint32,
		quota1 int64, period1 uint64, cpus1 string, limit1, quota2 int64, period2 uint64, cpus2 string, limit2 int64) {
		m := Machine{VCPUs: vcpus, MaxVCPUs: uint32(most), MemoryMiB: uint64(mem), MaxMemoryMiB: uint64(maxMem)}
		r1, r2 := cpu(quota1, period1, cpus1), cpu(quota2, period2, cpus2)
		r1.Memory, r2.Memory = memory(limit1).Memory, memory(limit2).Memory
		first, err := OfContainer(r1)
		if err != nil {
			return
		}
		second, err := OfContainer(r2)
		if err != nil {
			return
		}
		before := m.Size()
		for _, after := range []Size{m.Size(first), m.Size(first, second)} {
			if after.VCPUs < before.VCPUs || after.MemoryMiB < before.MemoryMiB {
				t.Errorf("%v with %v, %v: %v, and %v before", m, r1, r2, after, before)
			}
			before = after
		}
		if before.VCPUs < 1 || before.VCPUs > max(m.MaxVCPUs, 1) || before.MemoryMiB < m.MemoryMiB || before.MemoryMiB > max(m.MemoryMiB, m.MaxMemoryMiB) {
			t.Errorf("%v with %v, %v: %v", m, r1, r2, before)
		}
	})
}
