package passthrough

import (
	"maps"
	"runtime/debug"
	"slices"
)

// many is how many nodes a table must have had to be shrunk.
const many = 1 << 16

// live returns the number of nodes. The caller holds mu.
func (tb *table) live() int { return len(tb.byID) - len(tb.free) }

// thin shrinks a table that was large and has an eighth of its nodes left:
// otherwise a map keeps the room for all that it ever held, for the pod's life.
// It reports whether it did, so that the caller calls releaseMemory. The caller
// holds mu.
func (tb *table) thin() bool {
	live := tb.live()
	if tb.most < many || live > tb.most/8 {
		return false
	}
	tb.most = live
	byKey := make(map[key]*node, len(tb.byKey))
	maps.Copy(byKey, tb.byKey)
	tb.byKey = byKey
	// A node keeps its number, because the guest knows it.
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

// releaseMemory returns a thinned table's memory to the host. Go's collector
// would only run at later allocations, of which an idle pod makes few, and
// would keep the memory for future ones. It takes some ten milliseconds, once
// for tens of thousands of forgotten files.
func releaseMemory() { debug.FreeOSMemory() }
