package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// channels is struct ethtool_channels (include/uapi/linux/ethtool.h).
type channels struct {
	command                                    uint32
	maxReceive, maxSend, maxOther, maxCombined uint32
	receive, send, other, combined             uint32
}

// UseQueues has each of the pod's NICs use as many of its queue pairs as the guest
// has CPUs. The driver does so only for the CPUs that are online when it takes the
// device (drivers/net/virtio_net.c, virtnet_probe); others come later.
func (n *Network) UseQueues(cpus uint32) error {
	links, err := filepath.Glob("/sys/class/net/*/device/driver")
	if err != nil {
		return err
	}
	var errs []error
	for _, link := range links {
		if driver, err := os.Readlink(link); err != nil || filepath.Base(driver) != "virtio_net" {
			continue
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(link)))
		if err := useQueues(name, cpus); err != nil {
			errs = append(errs, fmt.Errorf("use the queues of interface %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func useQueues(name string, cpus uint32) error {
	c := channels{command: unix.ETHTOOL_GCHANNELS}
	if err := ethtool(name, &c); err != nil {
		return err
	}
	want := min(cpus, c.maxCombined)
	if want <= c.combined {
		return nil
	}
	c.command, c.combined = unix.ETHTOOL_SCHANNELS, want
	return ethtool(name, &c)
}

// ethtool is SIOCETHTOOL (netdevice(7)).
func ethtool(name string, c *channels) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(socket)
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // of struct ifreq
	}{data: unsafe.Pointer(c)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(c)
	if errno != 0 {
		return os.NewSyscallError("ioctl SIOCETHTOOL", errno)
	}
	return nil
}
