package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"

	"golang.org/x/sys/unix"
)

// serve echoes, or answers DNS queries, on every address until the first
// listener fails.
func serve(targets []string, out io.Writer) error {
	ended := make(chan error)
	for _, target := range targets {
		u, err := url.Parse(target)
		if err != nil {
			return err
		}
		switch u.Scheme {
		case "tcp", "reset":
			l, err := net.Listen("tcp", u.Host)
			if err != nil {
				return err
			}
			serveOn := serveTCP
			if u.Scheme == "reset" {
				serveOn = serveReset
			}
			go func() { ended <- serveOn(l) }()
		case "udp":
			config := net.ListenConfig{Control: neverFragment}
			conn, err := config.ListenPacket(context.Background(), "udp", u.Host)
			if err != nil {
				return err
			}
			go func() { ended <- serveUDP(conn) }()
		case "unix", "unixpacket", "peercred":
			if err := serveUnix(u.Scheme, u.Path, ended); err != nil {
				return err
			}
		case "dns":
			if err := serveDNS(u.Host, ended); err != nil {
				return err
			}
		default:
			return fmt.Errorf("serve %s: want tcp, reset, udp, dns, unix, unixpacket or peercred", target)
		}
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	return <-ended
}

// serveTCP echoes what it receives, and closes a connection after the client
// has.
func serveTCP(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(conn, conn) // the client compares the data
			_ = conn.Close()
		}()
	}
}

// serveUDP echoes each datagram; one that does not fit is not sent.
func serveUDP(conn net.PacketConn) error {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		_, _ = conn.WriteTo(buf[:n], from) // the client notices a loss
	}
}

// neverFragment sets the "don't fragment" bit of what a UDP socket sends: a
// datagram that does not fit the link's MTU is an error (ip(7), ipv6(7)).
func neverFragment(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) {
		v4 := unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		v6 := unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
		if v4 != nil && v6 != nil { // each knows at least one of the families
			set = errors.Join(v4, v6)
		}
	})
	return errors.Join(err, set)
}
