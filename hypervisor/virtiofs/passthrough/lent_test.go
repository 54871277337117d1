package passthrough

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A mount's number that the kernel may have reused stands for the same mount
// only in the same place, with the same root.
func TestReusedMountNumber(t *testing.T) {
	const number = 7
	for what, test := range map[string]struct {
		name   string
		stx    unix.Statx_t
		unique bool
		same   bool
	}{
		"the same":                  {"a", unix.Statx_t{Mnt_id: number, Ino: 1, Dev_minor: 1}, false, true},
		"another file system":       {"a", unix.Statx_t{Mnt_id: number, Ino: 1, Dev_minor: 2}, false, false},
		"another directory of it":   {"a", unix.Statx_t{Mnt_id: number, Ino: 2, Dev_minor: 1}, false, false},
		"another place":             {"b", unix.Statx_t{Mnt_id: number, Ino: 1, Dev_minor: 1}, false, false},
		"moved, with a number once": {"b", unix.Statx_t{Mnt_id: number, Ino: 1, Dev_minor: 1}, true, true},
	} {
		fs := &FS{opts: Options{Policy: func(string) Policy { return Auto }}}
		fs.nodes = table{byKey: map[key]*node{}, trees: map[uint64]*tree{}, slots: newSlots(8), uniqueMounts: test.unique}
		fs.nodes.mu.Lock()
		volume := fs.nodes.add(key{ino: 1}, &tree{id: shareTree + 1, mount: 1}, nil, "", unix.S_IFDIR)
		was := fs.treeBelow(volume, "a", &unix.Statx_t{Mnt_id: number, Ino: 1, Dev_minor: 1})
		is := fs.treeBelow(volume, test.name, &test.stx)
		fs.nodes.mu.Unlock()
		if !was.lent {
			t.Fatal("a mount in a volume is not lent")
		}
		if same := was == is; same != test.same || was.dead == same || fs.nodes.trees[number] != is {
			t.Errorf("%s: taken for the same: %v, want %v; the old tree is dead: %v", what, same, test.same, was.dead)
		}
	}
}

// A lent descriptor outlives one round after its last use, but not a second
// one; those in use, and those not lent, stay.
func TestRecall(t *testing.T) {
	tb := &table{byKey: map[key]*node{}, trees: map[uint64]*tree{}, slots: newSlots(8)}
	tb.lender.closed = true // no timer: the test calls recall
	kept, lent := &tree{id: 1}, &tree{id: 2, lent: true}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	slot := func(tr *tree, fd int) *node {
		n := tb.add(key{ino: uint64(fd), tree: tr.id}, tr, nil, "", unix.S_IFREG)
		tb.slots.insert(n, fd)
		return n
	}
	volume, idle, used, again := slot(kept, 1), slot(lent, 2), slot(lent, 3), slot(lent, 4)
	for _, n := range []*node{volume, idle, again} {
		tb.rest(n)
	}
	if fds := tb.slots.recall(nil); len(fds) != 0 {
		t.Errorf("the first round takes %v", fds)
	}
	tb.slots.use(again)
	tb.rest(again)
	if fds := tb.slots.recall(nil); len(fds) != 1 || fds[0] != 2 || idle.slot >= 0 {
		t.Errorf("the second round takes %v, want 2", fds)
	}
	tb.rest(used)
	if fds := tb.slots.recall(nil); len(fds) != 1 || fds[0] != 4 {
		t.Errorf("the third round takes %v, want 4", fds)
	}
	if volume.slot < 0 || used.slot < 0 || tb.slots.idle != 2 {
		t.Errorf("slots of the volume %d, of what was used %d; %d are idle", volume.slot, used.slot, tb.slots.idle)
	}
}
