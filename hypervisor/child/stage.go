package child

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// stageEnv makes this program, run as process 1 of a PID namespace, the stage
// that then executes another program. Its value is a kind of stage.
const stageEnv = "KATABOX_STAGE"

const (
	roomStage  = "room"  // makes a Room's /proc
	plainStage = "plain" // only checks that its parent is there, and raises a limit
)

// exeName is this program's name in a Room.
const exeName = "/stage"

// Room is a mount namespace for a child to start in. The child's paths are
// resolved in its root directory: executable, interpreter, libraries. It must
// be writable, and gets a /proc with only the child's own part (Proc).
type Room struct {
	// Mounts is the namespace (/proc/PID/ns/mnt) and Root a directory of it,
	// opened with O_PATH. The caller owns both.
	Mounts, Root *os.File
}

// A Room's Proc has ProcSelf, where the child's own directory of a real /proc
// is mounted, "self", which leads there, and copies of a few files below sys.
const (
	Proc     = "/proc"
	ProcSelf = Proc + "/1"
)

// CloneSelf makes a detached copy of the mount of this program's file, to be
// mounted in a Room at the name that it returns.
func CloneSelf() (self *os.File, name string, err error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/proc/self/exe", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, "", fmt.Errorf("clone the mount of this program: %w", err)
	}
	return os.NewFile(uintptr(fd), "/proc/self/exe"), exeName, nil
}

// enter moves the calling thread into the room. The thread must be used for
// nothing but starting the child.
func (r *Room) enter() error {
	// A separate root directory for the thread (setns(2)).
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare root directory: %w", err)
	}
	if err := unix.Setns(int(r.Mounts.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter mount namespace: %w", err)
	}
	if err := unix.Fchdir(int(r.Root.Fd())); err != nil {
		return fmt.Errorf("change directory: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change root directory: %w", err)
	}
	return nil
}

// The stage: a /proc shows the PID namespace of the process that mounts it, so
// a process in the new namespace must do that. The stage runs before any other
// code of the program, on the main thread, for which PDEATHSIG is set.
func init() {
	kind, ok := os.LookupEnv(stageEnv)
	if !ok || os.Getpid() != 1 {
		return
	}
	fmt.Fprintln(os.Stderr, stage(kind))
	os.Exit(1)
}

// stage executes the program that the arguments name. It returns only on failure.
func stage(kind string) error {
	if kind == roomStage {
		if err := makeProc(); err != nil {
			return fmt.Errorf("make %s: %w", Proc, err)
		}
	}
	if err := checkParent(); err != nil {
		return err
	}
	raiseOpenFiles()
	return fmt.Errorf("execute %s: %w", os.Args[0], unix.Exec(os.Args[0], os.Args, withoutStage(os.Environ())))
}

// copied are files of /proc with values of the host that programs read when
// they start.
var copied = []string{"/sys/fs/file-max", "/sys/fs/nr_open"}

// makeProc makes a /proc from which nothing leads to the rest of the real one:
// root can write to much of that without any capability.
func makeProc() error {
	const all = Proc + "/all"
	for _, dir := range []string{all, ProcSelf, Proc + "/sys/fs"} {
		if err := os.MkdirAll(dir, 0o555); err != nil {
			return err
		}
	}
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", all, "proc", flags, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	for _, name := range copied {
		data, err := os.ReadFile(all + name)
		if err == nil {
			err = os.WriteFile(Proc+name, data, 0o444)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := unix.Mount(all+"/1", ProcSelf, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", ProcSelf, err)
	}
	if err := unix.Mount("", ProcSelf, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", ProcSelf, err)
	}
	if err := os.Symlink("1", Proc+"/self"); err != nil {
		return err
	}
	if err := unix.Unmount(all, unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount", err)
	}
	return os.Remove(all)
}
