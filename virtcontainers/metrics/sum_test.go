package metrics

import (
	"testing"

	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
)

// A disk of several containers counts once, with what they have read and written
// together.
func TestSumOfDisks(t *testing.T) {
	one := &v2.Metrics{Io: &v2.IOStat{Usage: []*v2.IOEntry{{Major: 8, Minor: 1, Rbytes: 1, Wbytes: 2, Rios: 3, Wios: 4}, {Major: 9, Rbytes: 7}}}}
	other := &v2.Metrics{Io: &v2.IOStat{Usage: []*v2.IOEntry{{Major: 8, Minor: 1, Rbytes: 10, Wbytes: 20, Rios: 30, Wios: 40}}}}
	want := []*v2.IOEntry{{Major: 8, Minor: 1, Rbytes: 11, Wbytes: 22, Rios: 33, Wios: 44}, {Major: 9, Rbytes: 7}}
	if diff := cmp.Diff(want, Sum([]*v2.Metrics{one, other}).GetIo().GetUsage(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if one.Io.Usage[0].Rbytes != 1 {
		t.Errorf("a container's own counters were changed: %v", one)
	}
}
