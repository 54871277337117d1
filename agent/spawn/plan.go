package spawn

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Plan is what a process is to be.
type Plan struct {
	// Target is a pidfd of a process; Namespaces are those of its namespaces that
	// are joined, as CLONE_NEW* flags. A user namespace must be another than the
	// agent's.
	Target     *os.File
	Namespaces int
	// Cgroup is an open directory of cgroup v2 that the process starts in; nil is
	// the agent's.
	Cgroup *os.File
	// Stdio are the process's first three files. With Terminal they are a
	// terminal, which becomes its controlling one.
	Stdio    [3]*os.File
	Terminal bool

	Args []string // at least one; the first is looked for in Env's PATH
	Env  []string // NAME=VALUE
	Dir  string   // absolute, in the target's root
	// UID, GID and Groups are ids in the target's user namespace.
	UID, GID uint32
	Groups   []uint32
	// Capabilities are those of the process; nil leaves what the user is given.
	Capabilities    *Capabilities
	NoNewPrivileges bool
	Rlimits         []Rlimit
	OOMScoreAdj     *int    // nil is the agent's
	Umask           *uint32 // nil is the agent's
	Keyring         string  // the name of its session keyring
}

// Capabilities are sets of capabilities: bit N is the one with number N
// (linux/capability.h).
type Capabilities struct {
	Bounding, Effective, Permitted, Inheritable, Ambient uint64
	// Last is the highest number that the kernel knows.
	Last int
}

// Rlimit is a resource limit (setrlimit(2)).
type Rlimit struct {
	Resource   int // RLIMIT_*
	Soft, Hard uint64
}

// noID is not an id: setresuid(2) and setresgid(2) leave the ids as they are for it,
// which would be root's. setgroups(2) refuses it.
const noID = math.MaxUint32

// check reports what no process can have.
func (p *Plan) check() error {
	for _, list := range [][]string{p.Args, p.Env, {p.Dir, p.Keyring}} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return fmt.Errorf("%q contains a NUL byte: %w", s, unix.EINVAL)
			}
		}
	}
	if len(p.Args) == 0 {
		return fmt.Errorf("no program: %w", unix.EINVAL)
	}
	if p.GID == noID {
		return p.unmapped(true)
	}
	if p.UID == noID {
		return p.unmapped(false)
	}
	for _, f := range p.Stdio {
		if f != nil && f.Fd() < 3 {
			return fmt.Errorf("file %s has descriptor %d, want one above 2: %w", f.Name(), f.Fd(), unix.EINVAL)
		}
	}
	return nil
}

// paths is where the program may be, as exec.LookPath has it.
func (p *Plan) paths() []string {
	if !p.isSearched() {
		return []string{p.Args[0]}
	}
	var paths []string
	for _, dir := range filepath.SplitList(p.env("PATH")) {
		if dir == "" {
			dir = "." // a shell's reading
		}
		paths = append(paths, filepath.Join(dir, p.Args[0]))
	}
	return paths
}

// isSearched reports whether the program is looked for in PATH. If a relative directory
// there has it first, it is refused, as by exec.LookPath.
func (p *Plan) isSearched() bool { return !strings.Contains(p.Args[0], "/") }

// env is the value of one of the process's variables.
func (p *Plan) env(name string) string {
	for _, kv := range p.Env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}
