package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// What a client asks the server of resets for, by its first byte.
const (
	askReset = 'r' // answer with half and reset the connection
	askWait  = 'w' // answer with half and read until the connection's end
	askEnds  = 'e' // say how many connections of askWait were reset
)

// half is an answer that is cut.
const half = "half an ans"

// serveReset resets connections, and counts those that were reset to it.
func serveReset(l net.Listener) error {
	var resets atomic.Int32
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = conn.Close() }()
			ask := make([]byte, 1)
			if _, err := io.ReadFull(conn, ask); err != nil {
				return
			}
			switch ask[0] {
			case askReset:
				_, _ = io.WriteString(conn, half)
				time.Sleep(100 * time.Millisecond) // it is read before the reset
				_ = conn.(*net.TCPConn).SetLinger(0)
			case askWait:
				_, _ = io.WriteString(conn, half)
				if _, err := io.Copy(io.Discard, conn); errors.Is(err, unix.ECONNRESET) {
					resets.Add(1)
				}
			case askEnds:
				fmt.Fprint(conn, resets.Load())
			}
		}()
	}
}

// checkReset checks that a reset arrives as one, from the server, before and after the
// client's half-close, and from the client.
func checkReset(address string, _ url.Values) error {
	for _, halfClose := range []bool{false, true} {
		got, err := askServer(address, askReset, halfClose)
		if got != half || !errors.Is(err, unix.ECONNRESET) {
			return fmt.Errorf("the server resets, half-closed %v: read %q, error %w, want %q and a reset", halfClose, got, err, half)
		}
	}
	before, err := askServer(address, askEnds, true)
	if err != nil {
		return err
	}
	conn, err := net.DialTimeout("tcp", address, checkTime)
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte{askWait})
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, len(half)))
	}
	if err := errors.Join(err, conn.(*net.TCPConn).SetLinger(0), conn.Close()); err != nil {
		return err
	}
	var after string
	for end := time.Now().Add(checkTime); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if after, err = askServer(address, askEnds, true); err != nil {
			return err
		}
		if after != before {
			return nil
		}
	}
	return fmt.Errorf("the client reset: the server counts %s resets, as before", after)
}

// askServer asks, and reads the answer to its end.
func askServer(address string, ask byte, halfClose bool) (string, error) {
	conn, err := net.DialTimeout("tcp", address, checkTime)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_, err = conn.Write([]byte{ask})
	if halfClose {
		err = errors.Join(err, conn.(*net.TCPConn).CloseWrite())
	}
	if err := errors.Join(err, conn.SetDeadline(time.Now().Add(checkTime))); err != nil {
		return "", err
	}
	got, err := io.ReadAll(conn)
	return string(got), err
}
