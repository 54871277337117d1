package guest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// netLimits raises limits of the network, which the kernel derives from the memory of
// its start. By itself it does not follow memory that is added: a guest that grew would
// keep 1,024 sockets in TIME_WAIT and buffers for a small machine.
type netLimits struct {
	proc string // where procfs is mounted
	// chosen are the values that the kernel or raise has chosen, by their files below
	// /proc/sys. A file with another value was set by a container, and is left alone.
	chosen map[string][]uint64
	// tables are the sizes of connection tracking's table that the kernel or raise has
	// chosen, or would have while the guest had less memory. It is nil if they are the
	// operator's choice.
	tables map[uint64]bool
}

// netFormulas are the kernel's own, by the file below /proc/sys: of the pages that it can
// use for itself, and of the slots of the hash table that it would make at its start. A
// value of 0 is left as it is.
var netFormulas = map[string]func(pages, slots uint64) []uint64{
	// net/ipv4/tcp.c, tcp_init_mem, and net/ipv4/udp.c, udp_init.
	"net/ipv4/tcp_mem": func(pages, _ uint64) []uint64 { return pressure(pages / 16) },
	"net/ipv4/udp_mem": func(pages, _ uint64) []uint64 { return pressure(pages / 8) },
	// net/ipv4/tcp.c, tcp_init. Newer kernels than the guest image's 6.1 may choose more than
	// 6 MiB.
	"net/ipv4/tcp_rmem":        func(pages, _ uint64) []uint64 { return []uint64{0, 0, min(6<<20, socketShare(pages))} },
	"net/ipv4/tcp_wmem":        func(pages, _ uint64) []uint64 { return []uint64{0, 0, min(4<<20, socketShare(pages))} },
	"net/ipv4/tcp_max_orphans": func(_, slots uint64) []uint64 { return []uint64{slots / 2} },
	// net/ipv4/tcp_ipv4.c, tcp_set_hashinfo. They are of a network namespace, and the
	// containers have the guest's.
	"net/ipv4/tcp_max_tw_buckets":  func(_, slots uint64) []uint64 { return []uint64{slots / 2} },
	"net/ipv4/tcp_max_syn_backlog": func(_, slots uint64) []uint64 { return []uint64{slots / 128} },
}

// pressure returns the three limits of a protocol's memory, in pages.
func pressure(pages uint64) []uint64 {
	low := pages / 4 * 3
	return []uint64{low, pages, low * 2}
}

// socketShare is how many bytes one socket may have: 1/128 of the memory.
func socketShare(pages uint64) uint64 { return pages * uint64(os.Getpagesize()) / 128 }

// maxSlots is the most slots of TCP's hash table of connections, and slotMemory for how
// many bytes there is one (net/ipv4/tcp.c, tcp_init).
const maxSlots, slotMemory uint64 = 512 << 10, 128 << 10

// tcpSlots is a power of two (mm/mm_init.c, alloc_large_system_hash).
func tcpSlots(pages uint64) uint64 {
	slots := pages * uint64(os.Getpagesize()) / slotMemory
	if slots < 2 {
		return 1
	}
	return min(maxSlots, 1<<bits.Len64(slots-1))
}

// readNetLimits remembers what the kernel has chosen, before there are containers. Values
// that its command line sets are the operator's.
func readNetLimits(proc string) *netLimits {
	n := &netLimits{proc: proc, chosen: map[string][]uint64{}}
	operators := commandLineSysctls(proc)
	for file, formula := range netFormulas {
		values, err := n.read(file)
		if err == nil && !operators[file] && len(values) == len(formula(0, 0)) {
			n.chosen[file] = values
		}
	}
	if !slices.ContainsFunc(conntrackFiles, func(file string) bool { return operators[file] }) {
		n.tables = map[uint64]bool{}
		_ = n.noteTable() // without it, a table that is made now is left alone
	}
	return n
}

// raise sets the limits that the kernel would have chosen with the present memory, mib MiB
// in all. It lowers none, and goes on after an error.
func (n *netLimits) raise(mib uint64) error {
	pages, err := kernelPages(n.proc)
	if err != nil {
		return err
	}
	errs := []error{n.raiseConntrack(mib), n.noteTable()}
	for file := range n.chosen {
		errs = append(errs, n.raiseFile(file, netFormulas[file](pages, tcpSlots(pages))))
	}
	return errors.Join(errs...)
}

func (n *netLimits) raiseFile(file string, values []uint64) error {
	now, err := n.read(file)
	if err != nil {
		return err
	}
	if !slices.Equal(now, n.chosen[file]) {
		delete(n.chosen, file)
		return nil
	}
	for i := range values {
		values[i] = max(values[i], now[i])
	}
	if slices.Equal(now, values) {
		return nil
	}
	if err := n.set(file, strings.Trim(fmt.Sprint(values), "[]")); err != nil {
		return err
	}
	n.chosen[file] = values
	return nil
}

func (n *netLimits) set(file, text string) error {
	if err := writeFile(filepath.Join(n.proc, "sys", file), text); err != nil {
		return fmt.Errorf("raise %s to %s: %w", file, text, err)
	}
	return nil
}

func (n *netLimits) read(file string) ([]uint64, error) {
	text, err := os.ReadFile(filepath.Join(n.proc, "sys", file))
	if err != nil {
		return nil, fmt.Errorf("read limit of the network: %w", err)
	}
	var values []uint64
	for _, word := range strings.Fields(string(text)) {
		value, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		values = append(values, value)
	}
	return values, nil
}

// kernelPages returns how many pages of memory the kernel can use for itself, above the
// zones' high watermarks (mm/page_alloc.c, nr_free_buffer_pages). virtio-mem adds most
// memory as movable, which sockets cannot have.
func kernelPages(proc string) (pages uint64, err error) {
	text, err := os.ReadFile(filepath.Join(proc, "zoneinfo"))
	if err != nil {
		return 0, fmt.Errorf("read the kernel's memory: %w", err)
	}
	var zone string
	var high uint64
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 4 && words[0] == "Node" && words[2] == "zone": // "Node 0, zone   Normal"
			zone = words[3]
		case len(words) != 2 || zone == "Movable" || zone == "Device":
		case words[0] == "high":
			high, err = strconv.ParseUint(words[1], 10, 64)
		case words[0] == "managed": // follows "high"
			var managed uint64
			managed, err = strconv.ParseUint(words[1], 10, 64)
			pages += managed - min(managed, high)
		}
		if err != nil {
			return 0, fmt.Errorf("read the kernel's memory: %s/zoneinfo: zone %s: %w", proc, zone, err)
		}
	}
	return pages, nil
}
