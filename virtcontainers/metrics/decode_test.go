package metrics

import (
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
