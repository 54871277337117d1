package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"

	"golang.org/x/sys/unix"
)

// serveUnix echoes at a UNIX socket, or with peercred reports the client's
// credentials. It replaces the socket's file if there is one.
func serveUnix(scheme, path string, ended chan<- error) error {
	if err := unix.Unlink(path); err != nil && err != unix.ENOENT {
		return err
	}
	network, each := "unix", func(conn *net.UnixConn) { _, _ = io.Copy(conn, conn) }
	switch scheme {
	case "unixpacket":
		network = scheme
	case "peercred":
		each = tellPeer
	}
	l, err := net.Listen(network, path)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			go func() {
				each(conn.(*net.UnixConn))
				_ = conn.Close()
			}()
		}
	}()
	return nil
}

// tellPeer sends the client's credentials.
func tellPeer(conn *net.UnixConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			fmt.Fprintf(conn, "%d:%d", peer.Uid, peer.Gid)
		}
	})
}

func checkUnix(path string, options url.Values) error { return checkStream("unix", path, options) }

func checkUnixClosed(path string, _ url.Values) error { return checkEnded("unix", path) }

func checkUnixPacketClosed(path string, _ url.Values) error { return checkEnded("unixpacket", path) }

func checkUnixPacket(path string, options url.Values) error {
	count, err := number(options, "count")
	if err != nil {
		return err
	}
	conn, err := net.Dial("unixpacket", path)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	buf := make([]byte, 1<<17)
	for i := range count {
		message := bytes.Repeat([]byte{byte(i)}, 1+i*997%30_000) // io.Copy's block holds it
		if _, err := conn.Write(message); err != nil {
			return err
		}
		n, err := conn.Read(buf)
		if err != nil || !bytes.Equal(buf[:n], message) {
			return fmt.Errorf("message %d of %d bytes: %d came back, %w", i, len(message), n, err)
		}
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return err
	}
	if n, err := conn.Read(buf); !errors.Is(err, io.EOF) {
		return fmt.Errorf("after the half-close: %d bytes, %w", n, err)
	}
	return nil
}

func checkPeercred(path string, options url.Values) error {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	got, err := io.ReadAll(conn)
	if want := options.Get("user"); err != nil || string(got) != want {
		return fmt.Errorf("the server sees %q, want %q: %w", got, want, err)
	}
	return nil
}
