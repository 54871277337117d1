package spawn

// #include "spawn.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notDumpable makes the agent's memory, which its clones in containers share,
// inaccessible without CAP_SYS_PTRACE.
var notDumpable = sync.OnceValue(func() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("refuse to be traced: %w", err)
	}
	return nil
})

// Start starts the process, a child of this one, and returns its PID. It blocks
// until the program runs. On an error nothing is left of it.
//
// A program that is found and cannot be executed is no error: the process says
// why on its stderr and exits with 255, as with runc.
func (p *Plan) Start() (pid int, err error) {
	if err := errors.Join(p.check(), notDumpable()); err != nil {
		return 0, err
	}
	paths := p.paths()
	var pins pins
	defer pins.Unpin()
	var result C.struct_spawn_result
	C.spawn(p.encode(&pins, paths), &result)
	runtime.KeepAlive(p) // its files are open until here
	errno := syscall.Errno(result.error)
	switch {
	case errno == 0 && result.step == C.STEP_EXECUTE:
		return int(result.process), nil
	case errno != 0 && result.step == C.STEP_EXECUTE:
		p.sayNotExecuted(paths[result.path], errno)
		return int(result.process), nil
	}
	reap(int(result.process))
	if errno == 0 {
		return 0, ErrKilled
	}
	return 0, p.failure(&result)
}

// reap waits for a process that has ended.
func reap(pid int) {
	for pid > 0 {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// encode is the plan for C, valid until pins are unpinned.
func (p *Plan) encode(pins *pins, paths []string) *C.struct_spawn_plan {
	plan := &C.struct_spawn_plan{
		namespaces: C.uint64_t(p.Namespaces), target: descriptor(p.Target), cgroup: descriptor(p.Cgroup),
		terminal: flag(p.Terminal), no_new_privs: flag(p.NoNewPrivileges),
		keyring: pins.text(p.Keyring), directory: pins.text(p.Dir),
		uid: C.uint32_t(p.UID), gid: C.uint32_t(p.GID), umask: -1,
		paths: pins.list(paths), absolute: flag(p.isSearched()), argv: pins.list(p.Args), envp: pins.list(p.Env),
	}
	for i, f := range p.Stdio {
		plan.stdio[i] = descriptor(f)
	}
	if p.Umask != nil {
		plan.umask = C.int32_t(*p.Umask)
	}
	if p.OOMScoreAdj != nil {
		plan.oom_score_adj = pins.text(fmt.Sprint(*p.OOMScoreAdj))
	}
	plan.groups, plan.group_count = pinned(pins, p.Groups, func(id uint32) C.uint32_t { return C.uint32_t(id) })
	plan.rlimits, plan.rlimit_count = pinned(pins, p.Rlimits, func(l Rlimit) C.struct_spawn_rlimit {
		return C.struct_spawn_rlimit{resource: C.int32_t(l.Resource), soft: C.uint64_t(l.Soft), hard: C.uint64_t(l.Hard)}
	})
	if c := p.Capabilities; c != nil {
		plan.capabilities = &C.struct_spawn_capabilities{
			bounding: C.uint64_t(c.Bounding), effective: C.uint64_t(c.Effective), permitted: C.uint64_t(c.Permitted),
			inheritable: C.uint64_t(c.Inheritable), ambient: C.uint64_t(c.Ambient), last: C.int32_t(c.Last),
		}
		pins.Pin(plan.capabilities)
	}
	return plan
}

// descriptor is a file's, or -1.
func descriptor(f *os.File) C.int32_t {
	if f == nil {
		return -1
	}
	return C.int32_t(f.Fd())
}

func flag(on bool) C.int32_t {
	if on {
		return 1
	}
	return 0
}

// pins keep what C is given a pointer to where it is.
type pins struct{ runtime.Pinner }

func (p *pins) text(s string) *C.char {
	text := append([]byte(s), 0)
	p.Pin(&text[0])
	return (*C.char)(unsafe.Pointer(&text[0]))
}

// list is a list of strings that NULL ends.
func (p *pins) list(texts []string) **C.char {
	list := make([]*C.char, len(texts)+1)
	for i, s := range texts {
		list[i] = p.text(s)
	}
	p.Pin(&list[0])
	return &list[0]
}

// pinned is an array of C's, or NULL, and its length.
func pinned[T, C1 any](pins *pins, from []T, convert func(T) C1) (*C1, C.int32_t) {
	if len(from) == 0 {
		return nil, 0
	}
	array := make([]C1, len(from))
	for i, v := range from {
		array[i] = convert(v)
	}
	pins.Pin(&array[0])
	return &array[0], C.int32_t(len(array))
}
