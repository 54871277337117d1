package spawn

// #include "spawn.h"
import "C"

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrKilled is the error of a start that a signal ended before the program ran.
var ErrKilled = errors.New("killed before its program ran")

// ErrCgroup is the error of a start whose cgroup takes no process; the errno that
// is wrapped beside it says why.
var ErrCgroup = errors.New("clone into the container's cgroup")

// messages say what failed, as libcontainer does where runc's users know its
// text.
var messages = map[C.int32_t]string{
	C.STEP_CGROUP_NAMESPACE:    "make a cgroup namespace",
	C.STEP_OOM_SCORE:           "write oom_score_adj",
	C.STEP_RLIMITS:             "error setting rlimits",
	C.STEP_RECEIVE:             "receive the container's root and stdio",
	C.STEP_NAMESPACES:          "join the container's namespaces",
	C.STEP_ROOT:                "become root of the user namespace",
	C.STEP_ENTER:               "enter the container's root",
	C.STEP_STDIO:               "set stdio",
	C.STEP_CLOSE:               "close files",
	C.STEP_CLONE_PROCESS:       "clone into the container's PID namespace",
	C.STEP_SESSION:             "start a session",
	C.STEP_KEYRING:             "unable to join session keyring",
	C.STEP_KEYRING_PERMISSIONS: "unable to mod keyring permissions",
	C.STEP_TERMINAL:            "set controlling terminal",
	C.STEP_OWN_STDIO:           "change the owner of stdio",
	C.STEP_BOUNDING:            "unable to apply bounding set",
	C.STEP_KEEP_CAPS:           "keep capabilities",
	C.STEP_GROUPS:              "unable to setup user: setgroups",
	C.STEP_GID:                 "unable to setup user: setgid",
	C.STEP_UID:                 "unable to setup user: setuid",
	C.STEP_DIRECTORY_OUTSIDE:   "current working directory is outside of container mount namespace root -- possible container breakout detected",
	C.STEP_CAPABILITIES:        "unable to apply caps",
	C.STEP_AMBIENT:             "clear ambient capabilities",
	C.STEP_NO_NEW_PRIVS:        "set no_new_privs",
}

// failure is the error of a start that ended before execve(2).
func (p *Plan) failure(result *C.struct_spawn_result) error {
	errno := syscall.Errno(result.error)
	switch result.step {
	case C.STEP_CLONE:
		return fmt.Errorf("%w: %w", ErrCgroup, errno)
	case C.STEP_DIRECTORY:
		return fmt.Errorf("chdir to cwd (%q) set in config.json failed: %w", p.Dir, errno)
	case C.STEP_FIND, C.STEP_ACCESS:
		return p.notFound(result.step == C.STEP_FIND, errno)
	case C.STEP_RELATIVE:
		return &exec.Error{Name: p.Args[0], Err: exec.ErrDot}
	case C.STEP_GID, C.STEP_UID:
		if errno == unix.EINVAL {
			return p.unmapped(result.step == C.STEP_GID)
		}
	}
	return fmt.Errorf("%s: %w", messages[result.step], errno)
}

func (p *Plan) unmapped(group bool) error {
	if group {
		return fmt.Errorf("cannot setgid to unmapped gid %d in user namespace", p.GID)
	}
	return fmt.Errorf("cannot setuid to unmapped uid %d in user namespace", p.UID)
}

// notFound is what exec.LookPath says of a program.
func (p *Plan) notFound(isStat bool, errno syscall.Errno) error {
	name := p.Args[0]
	err := &exec.Error{Name: name, Err: errno}
	switch {
	case p.isSearched():
		err.Err = exec.ErrNotFound
	case isStat:
		err.Err = &fs.PathError{Op: "stat", Path: name, Err: errno}
	}
	return err
}

// sayNotExecuted tells the process's stderr why execve(2) failed: the process has
// ended with 255 by then.
func (p *Plan) sayNotExecuted(path string, errno syscall.Errno) {
	err := &os.PathError{Op: "exec", Path: path, Err: errno}
	_, _ = fmt.Fprintln(p.Stdio[2], err) // It may be closed.
}
