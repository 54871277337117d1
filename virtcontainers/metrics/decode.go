package metrics

import (
	"fmt"

	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	// maxBytes bounds an encoded answer. A container with 64 disks and
	// 32 interfaces needs some 8 KiB.
	maxBytes = 64 << 10
	// maxEntries bounds each list in it: disks, huge page sizes, interfaces.
	maxEntries = 1024
)

// Decode reads a guest's counters. Only fields that this program knows are
// kept, so that nothing else from the guest reaches an engine when they are
// encoded again, and they are made such as a kernel would give (makeSound). An answer that is too large or malformed is an
// errdefs.ErrOutOfRange or ErrInvalidArgument.
func Decode(stats *anypb.Any) (*v2.Metrics, error) {
	if n := len(stats.GetValue()); n > maxBytes {
		return nil, fmt.Errorf("decode the guest's counters: %d bytes, at most %d are taken: %w", n, maxBytes, errdefs.ErrOutOfRange)
	}
	m := new(v2.Metrics)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(stats.GetValue(), m); err != nil {
		return nil, fmt.Errorf("decode the guest's counters: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	for _, list := range []struct {
		of string
		n  int
	}{{"disks", len(m.GetIo().GetUsage())}, {"huge page sizes", len(m.GetHugetlb())}, {"network interfaces", len(m.GetNetwork())}} {
		if list.n > maxEntries {
			return nil, fmt.Errorf("decode the guest's counters: %d %s, at most %d are taken: %w",
				list.n, list.of, maxEntries, errdefs.ErrOutOfRange)
		}
	}
	makeSound(m)
	return m, nil
}
