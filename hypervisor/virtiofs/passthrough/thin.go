package passthrough

import (
	"maps"
	"runtime/debug"
	"slices"
)

// many is how many nodes a table must have had to be made smaller.
const many = 1 << 16

// live is how many nodes there are. The caller holds mu.
func (tb *table) live() int { return len(tb.byID) - len(tb.free) }

// thin makes a table smaller that was large and has an eighth of its nodes left:
// a map keeps the room of all that it ever had, for the pod's life. It reports
// whether it did, which then is worth releaseMemory. The caller holds mu.
func (tb *table) thin() bool {
	live := tb.live()
	if tb.most < many || live > tb.most/8 {
		return false
	}
	tb.most = live
	byKey := make(map[key]*node, len(tb.byKey))
	maps.Copy(byKey, tb.byKey)
	tb.byKey = byKey
	// A node keeps its number: the guest knows it by that.
	end := len(tb.byID)
	for end > 0 && tb.byID[end-1] == nil {
		end--
	}
	tb.byID = slices.Clone(tb.byID[:end])
	tb.free = nil
	for i, n := range tb.byID {
		if n == nil {
			tb.free = append(tb.free, uint32(i))
		}
	}
	return true
}

// releaseMemory gives to the host what a thinned table has left. Go's collector
// would begin at the next allocations, of which an idle pod makes few, and keep the
// memory for others to come. It takes some ten milliseconds, once for tens of
// thousands of forgotten files.
func releaseMemory() { debug.FreeOSMemory() }
