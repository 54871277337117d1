package passthrough

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
	"github.com/katabox/katabox/internal/fdtest"
)

// nullFD opens a descriptor that the caller closes, or something does for it.
func nullFD(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// What a guest opens while it begins another session is closed then, or belongs to the
// next session: no descriptor is lost.
func TestOpenDuringReset(t *testing.T) {
	root := shareOf(t)
	defer root.Close()
	fs := newFS(t, root)
	before := fdtest.Open(t)
	stop := make(chan struct{})
	var opening sync.WaitGroup
	for range 4 {
		opening.Go(func() {
			th := NewThread()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if fs.reserve(th) != 0 {
					continue // until the next session begins
				}
				n, errno := fs.nodes.get(rootID)
				if errno != 0 {
					t.Error(errno)
					return
				}
				_, _ = fs.keepHandle(th, &handle{fd: nullFD(t), node: n})
				fs.unreserve(th)
			}
		})
	}
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		fs.reset()
	}
	close(stop)
	opening.Wait()
	fs.reset()
	if diff := cmp.Diff(before, fdtest.Open(t)); diff != "" {
		t.Errorf("descriptors: %s", diff)
	}
}

// A descriptor that is in use when its mount is dropped is closed with its use, also
// when there are as many idle ones as there may be.
func TestDropOfWhatIsUsed(t *testing.T) {
	fs := &FS{}
	fs.nodes = table{byKey: map[key]*node{}, trees: map[uint64]*tree{}, slots: newSlots(1)}
	kept, dropped := &tree{id: 1}, &tree{id: 2}
	slot := func(tr *tree, ino uint64) *node {
		n := fs.nodes.add(key{ino: ino, tree: tr.id}, tr, nil, "", unix.S_IFREG)
		fs.nodes.slots.insert(n, nullFD(t))
		return n
	}
	idle, used := slot(kept, 1), slot(dropped, 2)
	fs.done(idle)
	dropped.dead = true
	fs.done(used)
	if used.slot >= 0 {
		t.Error("the descriptor of a dropped mount stays open")
	}
}

// A file that the guest forgets while it makes it is open as itself, or not at all:
// another file may have its number by then.
func TestForgottenWhileMade(t *testing.T) {
	root := shareOf(t)
	defer root.Close()
	fs := newFS(t, root)
	stop := make(chan struct{})
	var forgetting sync.WaitGroup
	forgetting.Go(func() {
		for ino := uint64(1); ; ino++ {
			select {
			case <-stop:
				return
			default:
			}
			for id := uint64(2); id < 6; id++ {
				fs.nodes.forget(id, 1)
			}
			n, _ := fs.nodes.get(rootID)
			_, _ = fs.intern(n, "other", &unix.Statx_t{Ino: 1<<40 + ino%2, Mode: unix.S_IFREG, Mnt_id: n.tree.mount}, -1)
			fs.nodes.put(n)
		}
	})
	onThread(t, func(th *Thread) {
		for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end) && !t.Failed(); {
			makeOne(t, fs, th)
		}
	})
	close(stop)
	forgetting.Wait()
}

// makeOne makes a file and closes it again.
func makeOne(t *testing.T, fs *FS, th *Thread) {
	dir, dfd, errno := fs.dir(th, rootID)
	if errno != 0 {
		t.Error(errno)
		return
	}
	defer fs.leave(dir)
	fd, err := unix.Openat(dfd, "made", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	if errno := statFD(fd, &th.stx); errno != 0 {
		t.Error(errno)
		return
	}
	ino := th.stx.Ino
	if fs.created(th, wire.NewRequest(), dir, "made", fd, 0) != 0 {
		return
	}
	for id := range uint64(len(fs.handles.all)) {
		h, _ := fs.handles.take(id + 1)
		if h == nil {
			continue
		}
		if h.node.key.ino != ino {
			t.Errorf("file %d is open as file %d", ino, h.node.key.ino)
		}
		_ = unix.Close(h.fd)
		fs.nodes.put(h.node)
	}
}
