package network

import (
	"errors"
	"fmt"
	"math"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// MinRate and MaxRate are the bounds of Options.RxRate and TxRate, in bits per second. They
// keep the arithmetic of a token bucket within its 32 bits.
const (
	MinRate = 8 * 1024
	MaxRate = 1e15
)

const (
	// minBurst is the smallest burst: one packet of the largest size that
	// segmentation offload makes.
	minBurst = 64 * 1024
	// burstsPerSecond and waitsPerSecond: a burst is what the rate carries in
	// 10 ms, and the queue what it carries in 50 ms.
	burstsPerSecond = 100
	waitsPerSecond  = 20
)

// rateHandle marks the token buckets that are made here.
var rateHandle = netlink.MakeHandle(0x4b42, 0)

func (o *Options) checkRates() error {
	for name, rate := range map[string]uint64{"receive": o.RxRate, "send": o.TxRate} {
		if rate != 0 && (rate < MinRate || rate > MaxRate) {
			return fmt.Errorf("%s rate of %d bit/s: want 0 for none, or %d to %d: %w", name, rate, MinRate, uint64(MaxRate), errdefs.ErrInvalidArgument)
		}
	}
	if o.Model == None && o.TxRate != 0 {
		return fmt.Errorf("send rate with model %s: it is unknown by which interface packets leave: %w", None, errdefs.ErrInvalidArgument)
	}
	return nil
}

// limitRate bounds what leaves over a link, in bits per second, by a token
// bucket at its root (tc-tbf(8)).
func (ns *namespace) limitRate(index int, bits uint64) error {
	bytes := bits / 8
	burst := min(max(bytes/burstsPerSecond, minBurst), math.MaxInt32)
	limit := min(bytes/waitsPerSecond+burst, math.MaxUint32)
	ticks := float64(burst) * netlink.TIME_UNITS_PER_SEC / float64(bytes) * netlink.TickInUsec()
	q := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: rateHandle, Parent: netlink.HANDLE_ROOT},
		Rate:       bytes, Limit: uint32(limit), Buffer: uint32(min(ticks, math.MaxUint32)),
	}
	if err := ns.QdiscAdd(q); err != nil {
		return fmt.Errorf("limit the rate to %d bit/s: %w", bits, err)
	}
	return nil
}

// checkRoot refuses a link with a configured root qdisc: a limit would replace
// it. The kernel's default qdiscs have no handle.
func (ns *namespace) checkRoot(index int) error {
	qdiscs, err := ns.qdiscs(index)
	if err != nil {
		return err
	}
	for _, q := range qdiscs {
		if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Handle != 0 {
			return fmt.Errorf("limit the rate: the link has a %s qdisc already: %w", q.Type(), errdefs.ErrAlreadyExists)
		}
	}
	return nil
}

// removeRate removes the token bucket of a link, if it exists.
func (ns *namespace) removeRate(index int) error {
	q := &netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: rateHandle, Parent: netlink.HANDLE_ROOT}}
	if err := ns.QdiscDel(q); err != nil && !noSuchQdisc(err) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("remove rate limit: %w", err)
	}
	return nil
}
