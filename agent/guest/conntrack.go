package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// The files below /proc/sys of connection tracking. They are there once its module is
// loaded, which a container's rules or sysctls have done.
const (
	conntrackBuckets = "net/netfilter/nf_conntrack_buckets"
	conntrackMax     = "net/netfilter/nf_conntrack_max"
)

// conntrackFiles also has the other name of conntrackMax.
var conntrackFiles = []string{conntrackBuckets, conntrackMax, "net/nf_conntrack_max"}

// raiseConntrack gives connection tracking the table that the kernel would make with the
// present memory of mib MiB, and as many connections. The kernel makes it when the module
// is loaded: by an init container, say, before the guest has the memory of the others. It
// lowers nothing, and leaves a size that the kernel would not have chosen: a container's.
func (n *netLimits) raiseConntrack(mib uint64) error {
	if n.tables == nil {
		return nil
	}
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
	if len(buckets) != 1 || len(most) != 1 || buckets[0] != most[0] || !n.tables[buckets[0]] { // the kernel's own are equal
		return nil
	}
	want := conntrackSlots(mib << 20)
	if want <= most[0] {
		return nil
	}
	if err := n.set(conntrackBuckets, strconv.FormatUint(want, 10)); err != nil {
		return err
	}
	want = wholePages(want)
	n.tables[want] = true
	return n.set(conntrackMax, strconv.FormatUint(want, 10))
}

// noteTable remembers the size of the table that the kernel makes with the present memory.
func (n *netLimits) noteTable() error {
	if n.tables == nil {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(n.proc, "meminfo"))
	if err != nil {
		return fmt.Errorf("read the guest's memory: %w", err)
	}
	var kib uint64
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); err != nil { // its first line
		return fmt.Errorf("read the guest's memory: %s/meminfo: %w", n.proc, err)
	}
	n.tables[wholePages(conntrackSlots(kib<<10))] = true
	return nil
}

// slotSize is the bytes of a slot on a 64-bit machine (struct hlist_nulls_head).
const slotSize = 8

// wholePages rounds a number of slots up to pages, as the kernel does with each number
// (nf_ct_alloc_hashtable).
func wholePages(slots uint64) uint64 {
	page := uint64(os.Getpagesize()) / slotSize
	return (slots + page - 1) / page * page
}

// conntrackSlots returns the kernel's own number of slots for a total of memory in bytes
// (net/netfilter/nf_conntrack_core.c, nf_conntrack_init_start).
func conntrackSlots(total uint64) uint64 {
	switch {
	case total > 4<<30:
		return 262144
	case total > 1<<30:
		return 65536
	default:
		return max(1024, total/16384/slotSize)
	}
}
