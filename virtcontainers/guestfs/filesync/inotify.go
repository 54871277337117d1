package filesync

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watchedEvents are all events that change what a look finds. Writes to a file
// that is gone from its directory do not matter.
const watchedEvents = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MODIFY |
	unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_EXCL_UNLINK

// instance is an inotify(7) instance that several watchers use. A file is
// watched once, however many of them watch it.
type instance struct {
	file   *os.File
	conn   syscall.RawConn
	reader sync.WaitGroup
	// users is guarded by shared.mu.
	users int

	mu sync.Mutex // guards what follows, and the watchers' watched
	// watchers are the watchers to notify, by the kernel's watch descriptor.
	watchers map[int32]map[*watcher]bool
	buf      [64 << 10]byte
}

// shared is the process's instance while there are watchers.
var shared struct {
	mu sync.Mutex // guards in and its users
	in *instance
}

// join returns the process's instance and counts a user; leave must follow.
func join() (*instance, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.in == nil {
		in, err := newInstance()
		if err != nil {
			return nil, err
		}
		shared.in = in
	}
	shared.in.users++
	return shared.in, nil
}

// leave drops a user of the instance; the last one closes it.
func (in *instance) leave() {
	shared.mu.Lock()
	in.users--
	last := in.users == 0
	if last {
		shared.in = nil
	}
	shared.mu.Unlock()
	if last {
		_ = in.file.Close()
		in.reader.Wait()
	}
}

func newInstance() (*instance, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("start watching files: %w", err)
	}
	in := &instance{file: os.NewFile(uintptr(fd), "inotify"), watchers: map[int32]map[*watcher]bool{}}
	if in.conn, err = in.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, in.file.Close())
	}
	in.reader.Go(func() {
		// Read returns when the file is closed: the function never reports that
		// it is done.
		_ = in.conn.Read(func(fd uintptr) bool {
			in.drain(int(fd))
			return false
		})
	})
	return in, nil
}

// drain reads all pending events and notifies the watchers.
func (in *instance) drain(fd int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for {
		n, err := unix.Read(fd, in.buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		in.dispatch(in.buf[:n])
	}
}

// dispatch parses events (inotify(7), struct inotify_event): watch descriptor,
// mask, cookie and the length of the name, four bytes each, and the name, with
// zeros after it.
func (in *instance) dispatch(events []byte) {
	for len(events) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(events))
		mask := binary.NativeEndian.Uint32(events[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		if end < 0 || end > len(events) {
			return
		}
		name, _, _ := strings.Cut(string(events[unix.SizeofInotifyEvent:end]), "\x00")
		events = events[end:]
		in.tell(wd, mask, name)
	}
}

func (in *instance) tell(wd int32, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		for _, watchers := range in.watchers {
			for w := range watchers {
				w.signal()
			}
		}
		return
	}
	for w := range in.watchers[wd] {
		if only := w.watched[wd].name; name == "" || only == "" || only == name {
			w.signal()
		}
		if mask&unix.IN_IGNORED != 0 {
			delete(w.watched, wd)
		}
	}
	if mask&unix.IN_IGNORED != 0 { // The kernel has dropped the watch.
		delete(in.watchers, wd)
	}
}

// add watches an open file for a watcher.
func (in *instance) add(w *watcher, f *os.File, name string) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	var wd int
	var failed error
	err = conn.Control(func(fd uintptr) {
		wd, failed = in.watch(fmt.Sprintf("/proc/self/fd/%d", fd))
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("watch %s: %w", f.Name(), err)
	}
	id := int32(wd)
	if in.watchers[id] == nil {
		in.watchers[id] = map[*watcher]bool{}
	}
	in.watchers[id][w] = true
	w.watched[id] = watched{name: name, round: w.round}
	return nil
}

func (in *instance) watch(path string) (wd int, err error) {
	var failed error
	err = in.conn.Control(func(fd uintptr) {
		wd, failed = unix.InotifyAddWatch(int(fd), path, watchedEvents)
	})
	return wd, errors.Join(err, failed)
}

// remove ends one watch of a watcher. The caller holds mu.
func (in *instance) remove(w *watcher, wd int32) {
	delete(w.watched, wd)
	delete(in.watchers[wd], w)
	if len(in.watchers[wd]) > 0 {
		return
	}
	delete(in.watchers, wd)
	_ = in.conn.Control(func(fd uintptr) {
		_, _ = unix.InotifyRmWatch(int(fd), uint32(wd)) // What it watched may be gone.
	})
}
