package k8s

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// recordsDir has a directory for each pod of Katabox, whose name is that of the
// pod's cgroup for overhead too.
const recordsDir = "/run/kata-containers/sandboxes"

// records remembers the names of all pods that the node has had: the cgroups for
// overhead are the machine's, where pods of other suites have theirs.
type records struct {
	inotify int
	names   map[string]bool
}

// watchRecords starts before the first pod. The kernel keeps the names until they
// are read.
func watchRecords() (*records, error) {
	if err := os.MkdirAll(recordsDir, 0o700); err != nil {
		return nil, fmt.Errorf("watch the pods' records: %w", err)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch the pods' records: %w", err)
	}
	if _, err := unix.InotifyAddWatch(fd, recordsDir, unix.IN_CREATE|unix.IN_DELETE_SELF); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the pods' records: %w", err), unix.Close(fd))
	}
	return &records{inotify: fd, names: map[string]bool{}}, nil
}

// overheads lists the cgroups for overhead of the node's pods.
func (r *records) overheads() ([]string, error) {
	if err := r.read(); err != nil {
		return nil, err
	}
	const overhead = "kata_overhead/*"
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/*/" + overhead, "/sys/fs/cgroup/" + overhead} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if r.names[filepath.Base(path)] {
				found = append(found, "cgroup "+path)
			}
		}
	}
	return found, nil
}

// read reads the names that are new.
func (r *records) read() error {
	events := make([]byte, 64<<10)
	for {
		n, err := unix.Read(r.inotify, events)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("read the names of pods: %w", err)
		default:
			if err := r.add(events[:n]); err != nil {
				return err
			}
		}
	}
}

// add parses events (inotify(7), struct inotify_event): the mask is the second
// word, the length of the name the fourth.
func (r *records) add(events []byte) error {
	for len(events) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		if mask&unix.IN_CREATE == 0 {
			return fmt.Errorf("pods' names were lost: %s was removed, or there were too many (inotify's mask %#x)", recordsDir, mask)
		}
		r.names[strings.TrimRight(string(events[unix.SizeofInotifyEvent:end]), "\x00")] = true
		events = events[end:]
	}
	return nil
}
