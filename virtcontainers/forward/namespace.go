package forward

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/netns"
)

// loopbacks are where our listeners are bound, on any free port. A client that
// connects to that port still reaches the guest, as on any other port.
var loopbacks = []unix.Sockaddr{
	&unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}},
	&unix.SockaddrInet6{Addr: [16]byte{15: 1}},
}

// listenIn listens in the namespace: on 127.0.0.1, and on ::1 unless the
// kernel has no IPv6.
func listenIn(ns *os.File) ([]*net.TCPListener, error) {
	var made []*net.TCPListener
	err := netns.Do(ns, func() error {
		for _, addr := range loopbacks {
			l, err := listen(addr)
			if errors.Is(err, unix.EAFNOSUPPORT) && len(made) > 0 {
				continue
			}
			if err != nil {
				return err
			}
			made = append(made, l)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, closeAll(made))
	}
	return made, nil
}

// listen makes a listening socket in the thread's namespace. It does not use
// package net, which would listen with MPTCP, a socket that a program may not
// pick for TCP, and which caches for the whole process what the first namespace
// supports.
func listen(addr unix.Sockaddr) (*net.TCPListener, error) {
	family, level, freebind := unix.AF_INET, unix.SOL_IP, unix.IP_FREEBIND
	if _, six := addr.(*unix.SockaddrInet6); six {
		family, level, freebind = unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_FREEBIND
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), "loopback")
	defer file.Close() // net.FileListener duplicates it
	// The engine may bring lo up later; until then it has no address.
	if err := unix.SetsockoptInt(fd, level, freebind, 1); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, addr); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}
