package network

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Counters are the traffic counters of one interface (/proc/net/dev).
type Counters struct {
	Name                                    string
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// ReadCounters reads the counters of the guest's interfaces but the loopback:
// the pod's, which all its containers share.
func ReadCounters() ([]Counters, error) {
	table, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return nil, fmt.Errorf("read interface counters: %w", err)
	}
	return parseCounters(string(table))
}

// fieldsPerLine is how many numbers follow an interface's name: eight received,
// eight sent (net/core/net-procfs.c, dev_seq_printf_stats).
const fieldsPerLine = 16

// parseCounters reads the table after its two heading lines.
func parseCounters(table string) ([]Counters, error) {
	var list []Counters
	for line := range strings.Lines(table) {
		name, rest, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "lo" {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) < fieldsPerLine {
			return nil, fmt.Errorf("interface %s has %d counters, want %d", name, len(fields), fieldsPerLine)
		}
		var n [fieldsPerLine]uint64
		for i := range n {
			var err error
			if n[i], err = strconv.ParseUint(fields[i], 10, 64); err != nil {
				return nil, fmt.Errorf("counters of interface %s: %w", name, err)
			}
		}
		list = append(list, Counters{
			Name:    name,
			RxBytes: n[0], RxPackets: n[1], RxErrors: n[2], RxDropped: n[3],
			TxBytes: n[8], TxPackets: n[9], TxErrors: n[10], TxDropped: n[11],
		})
	}
	return list, nil
}
