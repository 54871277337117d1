package child

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/mountns"
)

// jailStage enters the jail that text describes and executes the program that
// the arguments name. It returns only on failure.
func jailStage(text string) error {
	var j Jail
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return fmt.Errorf("read jail: %w", err)
	}
	env := withoutStage(os.Environ())
	if err := j.enter(); err != nil {
		return fmt.Errorf("make root directory: %w", err)
	}
	if err := j.drop(); err != nil {
		return fmt.Errorf("drop root's privileges: %w", err)
	}
	if err := dieWithParent(); err != nil {
		return err
	}
	raiseOpenFiles()
	return fmt.Errorf("execute %s: %w", os.Args[0], unix.Exec(os.Args[0], os.Args, env))
}

// jailOptions are the mount options of the root directory's tmpfs.
const jailOptions = "mode=0755"

const (
	bindFlags = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_NOSUID | unix.MS_NODEV
	// dirMode is the mode of the parent directories of what the jail holds.
	dirMode = 0o755
)

// placed is something of the host that goes into the jail: what to do in the
// new root directory, and the file that is held open until then.
type placed struct {
	name string
	file *os.File // a mount or a file
	make func(name string, file *os.File) error
}

// enter opens everything for the jail, enters an empty root directory and puts
// it there.
func (j *Jail) enter() error {
	defer unix.Umask(unix.Umask(0o022)) // the jail's user passes through directories of root's
	things, err := j.gather()
	if err == nil {
		err = j.numbers()
	}
	if err != nil {
		return err
	}
	// Any existing directory will do.
	if err := mountns.Enter(filepath.Dir(os.Args[0]), jailOptions); err != nil {
		return err
	}
	for _, t := range things {
		if err := os.MkdirAll(filepath.Dir(t.name), dirMode); err != nil {
			return err
		}
		if err := t.make(t.name, t.file); err != nil {
			return fmt.Errorf("make %s: %w", t.name, err)
		}
		if t.file != nil {
			_ = t.file.Close()
		}
	}
	if err := j.makeDevices(); err != nil {
		return err
	}
	return os.NewSyscallError("remount", unix.Mount("", "/", "", bindFlags|unix.MS_RDONLY, ""))
}

func (j *Jail) gather() ([]placed, error) {
	var things []placed
	for _, path := range j.Show {
		t, err := gatherShown(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("show %s: %w", path, err)
		}
		things = append(things, t)
	}
	for _, f := range j.Files {
		t, err := j.gatherFile(f)
		if err != nil {
			return nil, fmt.Errorf("show %s: %w", f.Path, err)
		}
		things = append(things, t)
	}
	for _, d := range j.Dirs {
		tree, err := cloneMount(d.Path)
		if err != nil {
			return nil, fmt.Errorf("show %s: %w", d.Path, err)
		}
		things = append(things, placed{d.Name, tree, bind(bindFlags | unix.MS_NOEXEC)})
	}
	if j.Descriptors != "" {
		// The process keeps its id, and so its directory, when it executes the
		// program.
		tree, err := cloneMount("/proc/self/fd")
		if err != nil {
			return nil, fmt.Errorf("show descriptors: %w", err)
		}
		things = append(things, placed{j.Descriptors, tree, bind(bindFlags | unix.MS_RDONLY | unix.MS_NOEXEC)})
	}
	return things, nil
}

// gatherShown keeps symbolic links as links: on most hosts /lib is one to
// /usr/lib.
func gatherShown(path string) (placed, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return placed{}, err
	}
	if info.Mode().Type() == fs.ModeSymlink {
		to, err := os.Readlink(path)
		return placed{name: path, make: func(name string, _ *os.File) error { return os.Symlink(to, name) }}, err
	}
	tree, err := cloneMount(path)
	return placed{path, tree, bind(bindFlags | unix.MS_RDONLY)}, err
}

// othersRead is the world-readable bit.
const othersRead = 0o004

func (j *Jail) gatherFile(f Shown) (placed, error) {
	info, err := os.Stat(f.Path)
	if err != nil {
		return placed{}, err
	}
	if j.UID == 0 || info.Mode()&othersRead != 0 {
		tree, err := cloneMount(f.Path)
		return placed{f.Name, tree, bind(bindFlags | unix.MS_RDONLY | unix.MS_NOEXEC)}, err
	}
	file, err := os.Open(f.Path)
	return placed{f.Name, file, j.copy}, err
}

// copy makes a file that the child's user owns.
func (j *Jail) copy(name string, from *os.File) error {
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Chown(int(j.UID), int(j.GID)), to.Close())
}

// cloneMount makes a detached copy of a path's mount.
func cloneMount(path string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("open_tree", err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// bind mounts a tree.
func bind(flags uintptr) func(string, *os.File) error {
	return func(name string, tree *os.File) error {
		info, err := tree.Stat()
		if err != nil {
			return err
		}
		if err := makePoint(name, info.IsDir()); err != nil {
			return err
		}
		err = unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, name, unix.MOVE_MOUNT_F_EMPTY_PATH)
		if err != nil {
			return os.NewSyscallError("move_mount", err)
		}
		return errors.Join(unix.Mount("", name, "", unix.MS_PRIVATE, ""), unix.Mount("", name, "", flags, ""))
	}
}

func makePoint(name string, dir bool) error {
	if dir {
		return os.MkdirAll(name, dirMode)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o444)
	if err != nil {
		return err
	}
	return f.Close()
}
