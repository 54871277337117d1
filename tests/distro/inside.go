package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// inside is process 1 of the other release: it makes the mounts, runs the
// command and reaps what that leaves behind. The kernel ends the rest of the
// PID namespace with it.
func inside(args []string) int {
	code, err := func() (int, error) {
		if len(args) != 1 {
			return 1, errors.New("want one argument")
		}
		var v view
		if err := json.Unmarshal([]byte(args[0]), &v); err != nil {
			return 1, err
		}
		if err := v.mount(); err != nil {
			return 1, err
		}
		return supervise(v.Command)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "distro: inside:", err)
	}
	return code
}

// mount makes the view this process's root.
func (v view) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// pivot_root wants a mount point.
	if err := unix.Mount(v.Root, v.Root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", v.Root, err)
	}
	for _, b := range v.Binds {
		if err := b.mount(v.Root); err != nil {
			return err
		}
	}
	for _, m := range []struct{ kind, at, data string }{
		{"proc", "/proc", ""}, {"tmpfs", "/run", "mode=755"}, {"tmpfs", "/tmp", "mode=1777"},
	} {
		if err := unix.Mount(m.kind, v.Root+m.at, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := os.Chdir(v.Root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root to %s: %w", v.Root, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	return os.Chdir(source)
}

// mount binds a file or a tree, and makes the mount point.
func (b bind) mount(root string) error {
	info, err := os.Stat(b.From)
	if err != nil {
		return fmt.Errorf("bind %s: %w", b.From, err)
	}
	to := filepath.Join(root, b.To)
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else {
		err = touch(to)
	}
	if err != nil {
		return fmt.Errorf("make place for %s: %w", b.To, err)
	}
	if err := unix.Mount(b.From, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", b.From, b.To, err)
	}
	return nil
}

// touch makes an empty file, replacing a link, which would lead to a file of
// this host.
func touch(path string) error {
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, nil, 0o644)
}

// supervise runs the command to its end and returns its exit code, 128+n for
// signal n. SIGTERM and SIGINT go to the command.
func supervise(command []string) (int, error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return 127, err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	child, err := os.StartProcess(path, command, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 126, err
	}
	go func() {
		for s := range signals {
			_ = child.Signal(s) // fails when it has ended, which Wait tells
		}
	}()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, fmt.Errorf("wait for children: %w", err)
		case pid == child.Pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == child.Pid && status.Exited():
			return status.ExitStatus(), nil
		}
	}
}
