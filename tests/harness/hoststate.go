package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// EnvStrict names the variable that, if not empty, makes the leak checks count every change of the host
// and not only what has a daemon's tag. Set it only if nothing else runs.
const EnvStrict = "KATABOX_TEST_STRICT"

// HostState is the set of things on the host that a pod may leave behind; each
// is a readable line.
type HostState map[string]struct{}

// runtimeDirs are where this runtime, and those that it replaces, keep state.
var runtimeDirs = []string{"/run/kata-containers", "/run/vc", "/run/kata"}

// ReadHostState reads the host's mounts, links, network namespaces, loop
// devices, shim sockets and runtime directories.
func ReadHostState() (HostState, error) {
	state := HostState{}
	readers := []func(HostState) error{
		readMounts, readLinks, readNetns, readLoops, readShimSockets, readRuntimeDirs,
	}
	for _, read := range readers {
		if err := read(state); err != nil {
			return nil, fmt.Errorf("read host state: %w", err)
		}
	}
	return state, nil
}

func (s HostState) add(kind, name string) { s[kind+" "+name] = struct{}{} }

// Since returns what is in s and was not in before, sorted.
func (s HostState) Since(before HostState) []string {
	var fresh []string
	for line := range s {
		if _, ok := before[line]; !ok {
			fresh = append(fresh, line)
		}
	}
	sort.Strings(fresh)
	return fresh
}

func readMounts(s HostState) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		// 36 35 98:0 /root /mount/point options... - type source options
		fields := strings.Fields(line)
		_, tail, ok := strings.Cut(line, " - ")
		if ok && len(fields) > 4 {
			s.add("mount", fields[4]+" ("+strings.Join(strings.Fields(tail)[:2], " ")+")")
		}
	}
	return nil
}

func readLinks(s HostState) error {
	links, err := net.Interfaces()
	for _, l := range links {
		s.add("link", l.Name)
	}
	return err
}

func readNetns(s HostState) error { return s.addEntries("netns", "/run/netns") }

func readShimSockets(s HostState) error { return s.addEntries("socket", "/run/containerd/s") }

func readLoops(s HostState) error {
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, b := range backing {
		if file, err := os.ReadFile(b); err == nil { // else it has gone
			s.add("loop", filepath.Base(filepath.Dir(filepath.Dir(b)))+" over "+strings.TrimSpace(string(file)))
		}
	}
	return err
}

// readRuntimeDirs adds the contents of the runtime directories. The directories
// themselves are no leak.
func readRuntimeDirs(s HostState) error {
	for _, dir := range runtimeDirs {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return ignoreGone(err)
			}
			if path != dir {
				s.add("file", path)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s HostState) addEntries(kind, dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		s.add(kind, filepath.Join(dir, e.Name()))
	}
	return ignoreGone(err)
}

// ignoreGone drops errors that mean that something does not exist.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// concerns reports whether a line of a HostState is a leak of the daemon with
// this tag and directory. A socket in /run/containerd/s is not: its name is a
// hash, only containerd 1.6's runc shims have theirs there, and a killed shim
// of another suite running meanwhile leaves it.
func concerns(line, tag, dir string) bool {
	return os.Getenv(EnvStrict) != "" || strings.Contains(line, tag) || strings.Contains(line, dir)
}

// served reports whether a process listens on the unix socket at path.
func served(path string) bool {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
