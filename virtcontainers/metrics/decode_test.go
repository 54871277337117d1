package metrics

import (
	"math"
	"strings"
	"testing"

	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
)

func encode(t testing.TB, m *v2.Metrics) *anypb.Any {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &anypb.Any{Value: data}
}

func TestDecode(t *testing.T) {
	want := &v2.Metrics{Pids: &v2.PidsStat{Current: 3}, Network: []*v2.NetworkStat{{Name: "eth0", RxBytes: 1}}}
	packed := encode(t, want)
	// Engines read these without looking for them.
	want.CPU, want.Memory, want.MemoryEvents, want.Io = &v2.CPUStat{}, &v2.MemoryStat{}, &v2.MemoryEvents{}, &v2.IOStat{}
	// Field 1000, which nothing here knows, is left out.
	packed.Value = append(packed.Value, 0xc2, 0x3e, 2, 'h', 'i')
	got, err := Decode(packed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// One entry for each disk, page size and interface, with a name that the kernel has:
// one duplicate fails the scrape of all of a host's containers.
func TestDecodeHasEachOnce(t *testing.T) {
	got, err := Decode(encode(t, &v2.Metrics{
		Io: &v2.IOStat{Usage: []*v2.IOEntry{{Major: 8, Rbytes: 1}, {Major: 8, Minor: 1}, {Major: 8, Rbytes: 2}}},
		Hugetlb: []*v2.HugeTlbStat{
			{Pagesize: "2MB", Current: 1}, {Pagesize: "2MB"}, {Pagesize: "1GB"}, {Pagesize: ""}, {Pagesize: "a\nb"}, {Pagesize: strings.Repeat("9", 20) + "MB"},
		},
		Network: []*v2.NetworkStat{{Name: "eth0", RxBytes: 1}, {Name: "eth0"}, {Name: ""}, {Name: "a b"}, {Name: "\x1b[2J"}, {Name: strings.Repeat("x", 16)}, {Name: "eth0.5@x"}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := &v2.Metrics{
		Pids: &v2.PidsStat{}, CPU: &v2.CPUStat{}, Memory: &v2.MemoryStat{}, MemoryEvents: &v2.MemoryEvents{},
		Io:      &v2.IOStat{Usage: []*v2.IOEntry{{Major: 8, Rbytes: 1}, {Major: 8, Minor: 1}}},
		Hugetlb: []*v2.HugeTlbStat{{Pagesize: "2MB", Current: 1}, {Pagesize: "1GB"}},
		Network: []*v2.NetworkStat{{Name: "eth0", RxBytes: 1}, {Name: "eth0.5@x"}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// Pressures are percentages. JSON has no NaN and no infinity, and the kubelet encodes
// those of all pods at once.
func TestDecodePressures(t *testing.T) {
	psi := func() *v2.PSIStats {
		return &v2.PSIStats{Some: &v2.PSIData{Avg10: math.NaN(), Avg60: math.Inf(1), Avg300: -1, Total: 5}, Full: &v2.PSIData{Avg10: 99.5, Avg60: 100, Avg300: 1e300}}
	}
	got, err := Decode(encode(t, &v2.Metrics{CPU: &v2.CPUStat{PSI: psi()}, Memory: &v2.MemoryStat{PSI: psi()}, Io: &v2.IOStat{PSI: psi()}}))
	if err != nil {
		t.Fatal(err)
	}
	want := &v2.PSIStats{Some: &v2.PSIData{Total: 5}, Full: &v2.PSIData{Avg10: 99.5, Avg60: 100}}
	for _, p := range []*v2.PSIStats{got.CPU.PSI, got.Memory.PSI, got.Io.PSI} {
		if diff := cmp.Diff(want, p, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestDecodeIsBounded(t *testing.T) {
	many := &v2.Metrics{Io: &v2.IOStat{Usage: make([]*v2.IOEntry, maxEntries+1)}}
	for i := range many.Io.Usage {
		many.Io.Usage[i] = &v2.IOEntry{}
	}
	for name, tc := range map[string]struct {
		stats *anypb.Any
		kind  func(error) bool
	}{
		"bytes":     {&anypb.Any{Value: make([]byte, maxBytes+1)}, errdefs.IsOutOfRange},
		"entries":   {encode(t, many), errdefs.IsOutOfRange},
		"malformed": {&anypb.Any{Value: []byte("\xff\xff\xff")}, errdefs.IsInvalidArgument},
	} {
		if _, err := Decode(tc.stats); !tc.kind(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(encode(f, &v2.Metrics{Pids: &v2.PidsStat{Current: 3}, Hugetlb: []*v2.HugeTlbStat{{Pagesize: "2MB"}}}).Value)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(&anypb.Any{Value: data})
		if err != nil {
			return
		}
		if _, err := proto.Marshal(ToV1(m, KernelOperations)); err != nil {
			t.Errorf("encode: %v", err)
		}
	})
}
