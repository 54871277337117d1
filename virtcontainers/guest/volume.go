package guest

import (
	"context"
	"fmt"
	"math"

	"github.com/katabox/katabox/agent/api"
)

// VolumeStats is how large and how full a volume's file system is, as its guest
// says: numbers that fit an int64, the parts no larger than the whole.
type VolumeStats struct {
	Bytes, Inodes Usage
	// ReadOnly is set when it cannot be written.
	ReadOnly bool
}

// Usage is a number of bytes or inodes. Some of them may be neither available
// nor used: reserved.
type Usage struct{ Total, Available, Used uint64 }

// VolumeStats asks for the file system that a storage has mounted.
func (c *Client) VolumeStats(ctx context.Context, target string) (VolumeStats, error) {
	resp, err := c.guest().VolumeStats(ctx, &api.VolumeStatsRequest{Target: target})
	if err != nil {
		return VolumeStats{}, fmt.Errorf("read the volume's size in the guest: %w", Err(err))
	}
	return VolumeStats{
		Bytes:    usage(resp.GetTotalBytes(), resp.GetAvailableBytes(), resp.GetUsedBytes()),
		Inodes:   usage(resp.GetTotalInodes(), resp.GetAvailableInodes(), resp.GetUsedInodes()),
		ReadOnly: resp.GetReadOnly(),
	}, nil
}

// usage bounds what a guest says: engines read the numbers as int64.
func usage(total, available, used uint64) Usage {
	total = min(total, math.MaxInt64)
	return Usage{Total: total, Available: min(available, total), Used: min(used, total)}
}
