package passthrough

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// heapNow returns the size of the heap.
func heapNow() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A guest that has forgotten most nodes costs no more than one that never knew
// them, and the remaining nodes keep their numbers.
func TestForgottenNodesLeaveNothing(t *testing.T) {
	const count, keepEach = 3 * many, 100_000
	tb := &table{byKey: map[key]*node{}, trees: map[uint64]*tree{}, slots: newSlots(8)}
	tr := &tree{}
	tb.mu.Lock()
	root := tb.add(key{ino: 1}, tr, nil, "", unix.S_IFDIR)
	tb.mu.Unlock()
	before := heapNow()
	know := func(ino int) *node {
		tb.mu.Lock()
		defer tb.mu.Unlock()
		n := tb.add(key{ino: uint64(ino)}, tr, root, fmt.Sprintf("file-%d", ino), unix.S_IFREG)
		n.lookups = 1
		return n
	}
	var ids []uint64
	for i := range count {
		ids = append(ids, know(i+2).id)
	}
	full := heapNow() - before
	var kept []uint64
	for i, id := range ids {
		if i%keepEach == 0 {
			kept = append(kept, id)
			continue
		}
		tb.forget(id, 1)
	}
	if left := heapNow() - before; left > full/4 {
		t.Errorf("%d bytes of %d are left for %d nodes of %d", left, full, len(kept), count)
	}
	runtime.KeepAlive(ids)
	for i, id := range kept {
		n, errno := tb.get(id)
		if want := uint64(i*keepEach + 2); errno != 0 || n.key.ino != want || tb.byKey[n.key] != n {
			t.Fatalf("node %d: %+v, %v; want file %d", id, n, errno, want)
		}
		tb.put(n)
	}
	if _, errno := tb.get(ids[len(ids)-1]); errno != unix.ESTALE {
		t.Errorf("a forgotten node is found: %v", errno)
	}
	taken := map[uint64]bool{root.id: true}
	for _, id := range kept {
		taken[id] = true
	}
	for i := range 2 * keepEach {
		if n := know(count + i + 2); taken[n.id] || tb.byID[n.id-1] != n {
			t.Fatalf("number %d is given twice", n.id)
		} else {
			taken[n.id] = true
		}
	}
}

// A small table, and one that is in use, is not changed.
func TestThinOnlyWhenWorthwhile(t *testing.T) {
	for _, test := range []struct {
		most, live int
		want       bool
	}{
		{many - 1, 1, false}, {many, many / 4, false}, {many, many / 8, true}, {4 * many, many, false}, {0, 0, false},
	} {
		tb := &table{most: test.most, byID: make([]*node, test.live)}
		for i := range tb.byID {
			tb.byID[i] = &node{id: uint64(i + 1)}
		}
		if got := tb.thin(); got != test.want {
			t.Errorf("%d nodes left of %d: thinned %v", test.live, test.most, got)
		}
	}
}
