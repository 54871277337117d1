package metrics

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"

	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
)

// makeSound makes a guest's counters such as the host's kernel would give: engines
// rely on that, and collect those of all containers at once.
//
//   - Messages are there. CRI-O and nerdctl read them without looking for them, and
//     would crash.
//   - Each disk, page size and interface is there once. Two samples of one name fail a
//     whole scrape of Prometheus (promhttp's HandlerOpts).
//   - Names are the kernel's: they become labels.
//   - Pressures are numbers: JSON has no others (encoding/json).
func makeSound(m *v2.Metrics) {
	fill(&m.Pids)
	fill(&m.CPU)
	fill(&m.Memory)
	fill(&m.MemoryEvents)
	fill(&m.Io)
	if m.Rdma != nil {
		m.Rdma = &v2.RdmaStat{} // a guest has no such devices
	}
	m.Io.Usage = once(m.Io.Usage, func(e *v2.IOEntry) ([2]uint64, bool) { return [2]uint64{e.Major, e.Minor}, true })
	m.Hugetlb = once(m.Hugetlb, func(h *v2.HugeTlbStat) (string, bool) { return h.Pagesize, pageSize.MatchString(h.Pagesize) })
	m.Network = once(m.Network, func(n *v2.NetworkStat) (string, bool) { return n.Name, isInterface(n.Name) })
	for _, psi := range []*v2.PSIStats{m.CPU.PSI, m.Memory.PSI, m.Io.PSI} {
		for _, p := range []*v2.PSIData{psi.GetSome(), psi.GetFull()} {
			if p != nil {
				p.Avg10, p.Avg60, p.Avg300 = percentage(p.Avg10), percentage(p.Avg60), percentage(p.Avg300)
			}
		}
	}
}

// fill makes a message that is missing.
func fill[T any](message **T) {
	if *message == nil {
		*message = new(T)
	}
}

// once returns the first entry of each key that is valid.
func once[T any, K comparable](list []T, key func(T) (k K, valid bool)) []T {
	seen := make(map[K]bool, len(list))
	return slices.DeleteFunc(list, func(entry T) bool {
		k, valid := key(entry)
		out := seen[k] || !valid
		seen[k] = true
		return out
	})
}

// pageSize is how cgroup v2's files name a size of huge pages.
var pageSize = regexp.MustCompile(`^[1-9][0-9]{0,3}[KMG]B$`)

// maxInterface is the longest name of a network interface (IFNAMSIZ less its NUL).
const maxInterface = 15

// isInterface reports whether a network interface may have that name
// (net/core/dev.c, dev_valid_name), and it can be printed.
func isInterface(name string) bool {
	return name != "" && len(name) <= maxInterface && !strings.ContainsFunc(name, func(r rune) bool {
		return r == '/' || r == ':' || unicode.IsSpace(r) || !unicode.IsPrint(r)
	})
}

// percentage returns 0 for what is none.
func percentage(v float64) float64 {
	if math.IsNaN(v) || v < 0 || v > 100 {
		return 0
	}
	return v
}
