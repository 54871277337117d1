package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// The files below /proc/sys of connection tracking. They are there once its module is
// loaded, which a container's rules or sysctls have done.
const (
	conntrackBuckets = "net/netfilter/nf_conntrack_buckets"
	conntrackMax     = "net/netfilter/nf_conntrack_max"
)

// raiseConntrack gives connection tracking the table that the kernel would make with the
// present memory of mib MiB, and as many connections. The kernel makes it when the module is loaded:
// by an init container, say, before the guest has the memory of the others. It lowers
// nothing, and leaves a limit that a container has set.
func (n *netLimits) raiseConntrack(mib uint64) error {
	buckets, err := n.read(conntrackBuckets)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	most, err := n.read(conntrackMax)
	if err != nil {
		return err
	}
	if len(buckets) != 1 || len(most) != 1 || buckets[0] != most[0] { // the kernel's own are equal
		return nil
	}
	want := conntrackSlots(mib << 20)
	if want <= most[0] {
		return nil
	}
	if err := n.set(conntrackBuckets, strconv.FormatUint(want, 10)); err != nil {
		return err
	}
	if buckets, err = n.read(conntrackBuckets); err != nil { // the kernel rounds up to pages
		return err
	}
	return n.set(conntrackMax, strings.Trim(fmt.Sprint(buckets), "[]"))
}

// conntrackSlots returns the kernel's own number of slots for a total of memory in bytes
// (net/netfilter/nf_conntrack_core.c, nf_conntrack_init_start).
func conntrackSlots(total uint64) uint64 {
	const head = 8 // bytes of a slot on a 64-bit machine
	switch {
	case total > 4<<30:
		return 262144
	case total > 1<<30:
		return 65536
	default:
		return max(1024, total/16384/head)
	}
}
