package reverse

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

// openTCP listens for an address without occupying its port, if the kernel can
// steer connections. remove cleans up what the listener's Close leaves.
func openTCP(ctx context.Context, at netip.AddrPort) (_ *net.TCPListener, remove func(), err error) {
	l, err := listenPlain(ctx, netip.AddrPortFrom(at.Addr(), 0))
	if err != nil {
		return nil, nil, fmt.Errorf("listen for %s: %w", at, err)
	}
	steering, err := steer(l, unix.IPPROTO_TCP, at)
	if err == nil {
		return l, func() { _ = steering.Close() }, nil
	}
	log.G(ctx).WithError(err).Debug("connections cannot be steered here: the listener takes the port in the guest")
	_ = l.Close()
	if l, err = listenPlain(ctx, at); err != nil {
		return nil, nil, fmt.Errorf("listen at %s: %w", at, err)
	}
	return l, func() {}, nil
}

// listenPlain listens without MPTCP, whose sockets cannot be in a BPF socket
// map.
func listenPlain(ctx context.Context, at netip.AddrPort) (*net.TCPListener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	l, err := config.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// datagramSocket receives datagrams to an address, and answers from that
// address.
type datagramSocket struct {
	*net.UDPConn
	at       netip.AddrPort
	steering io.Closer // nil: the socket is bound to the address
	raw      *os.File  // sends from the address, with steering
	closing  sync.Once // a link's Close is not safe for concurrent use
}

// openUDP is like openTCP, for datagrams.
func openUDP(ctx context.Context, at netip.AddrPort) (*datagramSocket, error) {
	s, err := openBeside(at)
	if err == nil {
		return s, nil
	}
	log.G(ctx).WithError(err).Debug("connections cannot be steered here: the listener takes the port in the guest")
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, fmt.Errorf("receive datagrams at %s: %w", at, err)
	}
	return &datagramSocket{UDPConn: conn, at: at}, nil
}

// openBeside receives at another port by steering.
func openBeside(at netip.AddrPort) (*datagramSocket, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at.Addr(), 0)))
	if err != nil {
		return nil, fmt.Errorf("receive datagrams for %s: %w", at, err)
	}
	s := &datagramSocket{UDPConn: conn, at: at}
	// It only sends: an IPPROTO_RAW socket receives nothing (raw(7)).
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if err == nil {
		s.raw = os.NewFile(uintptr(fd), "raw")
		s.steering, err = steer(conn, unix.IPPROTO_UDP, at)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close may be called again, and concurrently.
func (s *datagramSocket) Close() error {
	var err error
	s.closing.Do(func() {
		err = s.UDPConn.Close()
		if s.raw != nil {
			_ = s.raw.Close()
		}
		if s.steering != nil {
			_ = s.steering.Close()
		}
	})
	return err
}

// answer sends a datagram from the address. One that cannot be sent is lost, as
// datagrams are.
func (s *datagramSocket) answer(data []byte, to netip.AddrPort) {
	if s.raw == nil {
		_, _ = s.WriteToUDPAddrPort(data, to)
		return
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if !to.Addr().Is4() {
		return
	}
	conn, err := s.raw.SyscallConn()
	if err != nil {
		return
	}
	packet := udpPacket(s.at, to, data)
	_ = conn.Write(func(fd uintptr) bool {
		err := unix.Sendto(int(fd), packet, 0, &unix.SockaddrInet4{Addr: to.Addr().As4()})
		return !errors.Is(err, unix.EAGAIN)
	})
}

// Lengths of an IPv4 header without options, and of UDP's (RFC 791, RFC 768).
const (
	ipHeader  = 20
	udpHeader = 8
)

// udpPacket returns a datagram with its headers. The kernel fills in the IP
// header's length, identification and checksum (raw(7)); UDP's checksum 0 is
// none.
func udpPacket(from, to netip.AddrPort, data []byte) []byte {
	p := make([]byte, ipHeader+udpHeader, ipHeader+udpHeader+len(data))
	p[0] = 4<<4 | ipHeader/4
	p[8] = 64 // time to live
	p[9] = unix.IPPROTO_UDP
	src, dst := from.Addr().As4(), to.Addr().As4()
	copy(p[12:], src[:])
	copy(p[16:], dst[:])
	udp := p[ipHeader:]
	binary.BigEndian.PutUint16(udp, from.Port())
	binary.BigEndian.PutUint16(udp[2:], to.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(udpHeader+len(data)))
	return append(p, data...)
}
