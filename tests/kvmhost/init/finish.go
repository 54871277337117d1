package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/kvmhost/wire"
)

// hostname is the machine's host name.
const hostname = "kvmhost"

// openFiles is about the limit that distributions, and containerd's own service
// file, give containerd.
const openFiles = 1 << 20

// finish does what an init does besides mounting.
func finish(wire.Setup) error {
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	limit := unix.Rlimit{Cur: openFiles, Max: openFiles}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("set limit of open files: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	return enableControllers("/sys/fs/cgroup")
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	req.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

// enableControllers enables all available controllers for the cgroups below the
// root, as systemd does.
func enableControllers(root string) error {
	list, err := os.ReadFile(root + "/cgroup.controllers")
	if err != nil {
		return fmt.Errorf("enable controllers: %w", err)
	}
	var words []string
	for _, name := range strings.Fields(string(list)) {
		words = append(words, "+"+name)
	}
	if err := os.WriteFile(root+"/cgroup.subtree_control", []byte(strings.Join(words, " ")), 0o644); err != nil {
		return fmt.Errorf("enable controllers: %w", err)
	}
	return nil
}
