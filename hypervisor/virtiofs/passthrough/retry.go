package passthrough

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// retries are the opens that were answered with ESTALE because the file is not in its
// place (inPlace). The guest's kernel repeats such an open once, in the same thread
// (fs/namei.c, do_filp_open), and returns another ESTALE to the program. So the second
// one is served:
//   - After a lookup of the name it is of the file that was found. The host may have
//     replaced that file, too, which lookup has kept open for this.
//   - By /proc/PID/fd, without a name, it is of the same file, which the guest has open.
type retries struct {
	// last is when one was added, in nanoseconds of time.Since(start); 0 for never.
	last atomic.Int64

	mu   sync.Mutex
	all  [maxRetries]retry
	next int // the oldest
}

// retry is a thread of the guest that opens a file again.
type retry struct {
	thread uint32
	at     namedPlace
	since  time.Duration // of start; 0 for none
}

// namedPlace is a name in a directory.
type namedPlace struct {
	dir  key
	name string
}

const (
	// maxRetries bounds the threads that open again; of more the first are forgotten.
	maxRetries = 64
	// retryTime is for how long a second open is expected.
	retryTime = time.Second
)

// start is a time before all others.
var start = time.Now().Add(-time.Second)

// add records a thread.
func (r *retries) add(thread uint32, at namedPlace) {
	now := time.Since(start)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[r.next] = retry{thread: thread, at: at, since: now}
	r.next = (r.next + 1) % maxRetries
	r.last.Store(int64(now))
}

// expects reports whether a thread may open the file at a place again. It costs nothing
// if no file was replaced lately.
func (r *retries) expects(thread uint32, at namedPlace) bool { return r.find(thread, at, false) }

// take is expects, once for each add.
func (r *retries) take(thread uint32, at namedPlace) bool { return r.find(thread, at, true) }

func (r *retries) find(thread uint32, at namedPlace, take bool) bool {
	last := time.Duration(r.last.Load())
	if last == 0 {
		return false
	}
	now := time.Since(start)
	if now-last > retryTime {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.all {
		e := &r.all[i]
		if e.since == 0 || now-e.since > retryTime || e.thread != thread || e.at != at {
			continue
		}
		if take {
			*e = retry{}
		}
		return true
	}
	return false
}

// fdToOpen is fd for an open: a file that is not in its place is stale, unless it is
// opened again.
func (fs *FS) fdToOpen(t *Thread, n *node, again bool) (int, unix.Errno) {
	fd, errno := fs.fd(t, n)
	if errno != 0 {
		return -1, errno
	}
	if errno := fs.inPlace(t, n); errno != 0 && (errno != unix.ESTALE || !again) {
		fs.done(n)
		return -1, errno
	}
	return fd, 0
}

// keepToOpen gives a node that was just found by its name its descriptor, which stays
// open while there is room. If that fails the open may be stale once more.
func (fs *FS) keepToOpen(t *Thread, id uint64, dfd int, name string) {
	n, errno := fs.nodes.get(id)
	if errno != 0 {
		return
	}
	defer fs.nodes.put(n)
	fd, errno := openPath(dfd, name)
	if errno != 0 {
		return
	}
	if _, errno = fs.keep(t, n, fd); errno == 0 {
		fs.done(n)
	}
}
