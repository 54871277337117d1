package main

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// checkTime bounds one check on a machine that has other work.
	checkTime = 30 * time.Second
	// resendTime is when a datagram without an echo is sent again.
	resendTime = 300 * time.Millisecond
)

// checks are what "probe check" can do with an address.
var checks = map[string]func(address string, options url.Values) error{
	// All of "bytes" random bytes come back unchanged.
	"tcp": checkTCP,
	// A datagram that fills a frame of "mtu" bytes comes back without having
	// been fragmented, and one byte more does not fit.
	"udp": checkUDP,
	// Resets of either side arrive as resets.
	"reset": checkReset,
	// A connection is refused, or closed before any data arrives, and not left
	// without an answer.
	"closed": checkClosed,
	// As tcp, by a UNIX socket.
	"unix": checkUnix,
	// "count" messages of different lengths come back as they were sent, by a
	// UNIX socket of SOCK_SEQPACKET.
	"unixpacket": checkUnixPacket,
	// The server sees us as "user" ("uid:gid").
	"peercred": checkPeercred,
	// A connection to a UNIX socket is refused, or closed before any data
	// arrives.
	"unixclosed": checkUnixClosed,
	// The same of SOCK_SEQPACKET.
	"unixpacketclosed": checkUnixPacketClosed,
	// A name has "count" addresses, by the servers of /etc/resolv.conf.
	"resolve": checkResolve,
}

func check(targets []string, out io.Writer) error {
	for _, target := range targets {
		u, err := url.Parse(target)
		if err != nil {
			return err
		}
		run, ok := checks[u.Scheme]
		if !ok {
			return fmt.Errorf("check %s: want one of the checks of check.go", target)
		}
		begin := time.Now()
		if err := run(u.Host+u.Path, u.Query()); err != nil {
			return fmt.Errorf("check %s: %w", target, err)
		}
		fmt.Fprintf(out, "ok %s in %d ms\n", target, time.Since(begin).Milliseconds())
	}
	return nil
}

func number(options url.Values, name string) (int, error) {
	n, err := strconv.Atoi(options.Get(name))
	if err != nil || n < 1 {
		return 0, fmt.Errorf("option %s is %q, want a positive number", name, options.Get(name))
	}
	return n, nil
}

func checkTCP(address string, options url.Values) error {
	return checkStream("tcp", address, options)
}

func checkStream(network, address string, options url.Values) error {
	size, err := number(options, "bytes")
	if err != nil {
		return err
	}
	data := make([]byte, size)
	_, _ = rand.Read(data) // never fails (crypto/rand)
	conn, err := net.DialTimeout(network, address, checkTime)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(checkTime)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(data)
		sent <- errors.Join(err, conn.(interface{ CloseWrite() error }).CloseWrite())
	}()
	sum := sha256.New()
	n, err := io.Copy(sum, conn)
	if err := errors.Join(<-sent, err); err != nil {
		return fmt.Errorf("%d of %d bytes came back: %w", n, size, err)
	}
	if want := sha256.Sum256(data); !bytes.Equal(sum.Sum(nil), want[:]) {
		return fmt.Errorf("%d bytes came back with another checksum than the %d sent", n, size)
	}
	return nil
}

// Bytes that a datagram's headers take of a frame.
const (
	headers4 = 20 + 8
	headers6 = 40 + 8
)

func checkUDP(address string, options url.Values) error {
	mtu, err := number(options, "mtu")
	if err != nil {
		return err
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	size := mtu - headers4
	if to.Addr().Is6() {
		size = mtu - headers6
	}
	dialer := net.Dialer{Control: neverFragment}
	conn, err := dialer.Dial("udp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	data := make([]byte, size+1)
	_, _ = rand.Read(data)
	if _, err := conn.Write(data); !errors.Is(err, unix.EMSGSIZE) {
		return fmt.Errorf("send %d bytes, one more than an MTU of %d lets through: error %w, want %w", size+1, mtu, err, unix.EMSGSIZE)
	}
	return echoUDP(conn, data[:size])
}

// echoUDP sends data until it comes back: a datagram may be lost.
func echoUDP(conn net.Conn, data []byte) error {
	buf := make([]byte, 1<<16)
	var last error
	for end := time.Now().Add(checkTime); time.Now().Before(end); {
		// The ICMP error of an earlier datagram is reported here: that one may
		// have been sent before the server listened.
		if _, err := conn.Write(data); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(resendTime)); err != nil {
			return err
		}
		n, err := conn.Read(buf)
		if err == nil && !bytes.Equal(buf[:n], data) {
			return fmt.Errorf("%d bytes came back that are not the %d sent", n, len(data))
		}
		if err == nil {
			return nil
		}
		last = err
	}
	return fmt.Errorf("a datagram of %d bytes does not come back: %w", len(data), last)
}

func checkClosed(address string, _ url.Values) error { return checkEnded("tcp", address) }

func checkEnded(network, address string) error {
	conn, err := net.DialTimeout(network, address, checkTime)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("connection failed, want it refused: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(checkTime)); err != nil {
		return err
	}
	n, err := conn.Read(make([]byte, 1))
	if n == 0 && (errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET)) {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the connection was made and stays silent, want it refused or ended: %w", err)
	}
	return fmt.Errorf("the connection brought %d bytes, error %w; want it refused or ended", n, err)
}
