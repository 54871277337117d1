package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// node is a device that would let a container out of its confinement in the
// guest.
type node struct {
	kind         uint32
	major, minor uint32
}

// nodes are hardware and memory of the guest, and disks by the numbers of the
// kernel's drivers, whether or not there is one (Linux's
// Documentation/admin-guide/devices.txt; 251 to 254 are given out dynamically,
// to virtio's disks among others).
var nodes = []node{
	{unix.S_IFCHR, 1, 1}, {unix.S_IFCHR, 1, 4}, {unix.S_IFCHR, 1, 11}, // mem, port, kmsg
	{unix.S_IFCHR, 4, 0}, {unix.S_IFCHR, 4, 64}, {unix.S_IFCHR, 229, 0}, // tty0, ttyS0, hvc0
	{unix.S_IFCHR, 10, 144}, {unix.S_IFCHR, 10, 228}, {unix.S_IFCHR, 10, 232}, // nvram, hpet, kvm
	{unix.S_IFCHR, 10, 229}, {unix.S_IFCHR, 10, 237}, {unix.S_IFCHR, 10, 235}, // fuse, loop-control, autofs
	{unix.S_IFBLK, 1, 0}, {unix.S_IFBLK, 7, 0}, {unix.S_IFBLK, 8, 0}, {unix.S_IFBLK, 259, 0}, // ram, loop, sda, nvme
	{unix.S_IFBLK, 251, 0}, {unix.S_IFBLK, 252, 0}, {unix.S_IFBLK, 253, 0}, {unix.S_IFBLK, 254, 0},
}

const nodePath = "/attacker-node"

// eachDevice makes each node and tries f with it. It fails with EPERM if every
// attempt is refused, and with nil if one is not.
func eachDevice(f func(node) error) error {
	for _, n := range nodes {
		err := unix.Mknod(nodePath, n.kind|0o600, int(unix.Mkdev(n.major, n.minor)))
		if err == nil {
			err = errors.Join(f(n), ignoreRefusal(os.Remove(nodePath)))
		}
		if !refused(err) {
			return fmt.Errorf("device %d:%d: %v, want a refusal", n.major, n.minor, err) //nolint:errorlint // an errno would count as a refusal
		}
	}
	return unix.EPERM
}

func refused(err error) bool { return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) }

// ignoreRefusal keeps the errors of a clean-up from counting as a refusal.
func ignoreRefusal(err error) error {
	if err != nil {
		return fmt.Errorf("remove device node: %v", err) //nolint:errorlint // its errno would count as a refusal
	}
	return nil
}

func openDevice(n node) error {
	fd, err := unix.Open(nodePath, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// mountDisk mounts a block device. Others count as refused.
func mountDisk(n node) error {
	if n.kind != unix.S_IFBLK {
		return unix.EPERM
	}
	return mount(nodePath, "ext4")
}
