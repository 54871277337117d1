package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// dialTimeout bounds one connection that should be refused.
const dialTimeout = 20 * time.Second

// usePorts connects to a host without a listener, once for each further
// argument "FROM:TO" (FROM 0: the kernel chooses), and prints which ports the
// kernel chooses for listeners.
func usePorts(args []string, out io.Writer) error {
	if len(args) < 2 {
		return errors.New("want ports HOST and one FROM:TO or more")
	}
	for _, pair := range args[1:] {
		from, to, _ := strings.Cut(pair, ":")
		port, err := strconv.ParseUint(from, 10, 16)
		if err != nil {
			return err
		}
		d := net.Dialer{Timeout: dialTimeout, LocalAddr: &net.TCPAddr{Port: int(port)}}
		conn, err := d.Dial("tcp4", net.JoinHostPort(args[0], to))
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("connect from %s to %s: %w, want that it is refused", from, to, err)
		}
	}
	return chooseListeners(out)
}

// listeners is how many ports chooseListeners has open simultaneously.
const listeners = 4

func chooseListeners(out io.Writer) error {
	var open []net.Listener
	defer func() {
		for _, l := range open {
			_ = l.Close()
		}
	}()
	fmt.Fprint(out, "bound")
	for range listeners {
		l, err := net.Listen("tcp4", ":0")
		if err != nil {
			return err
		}
		open = append(open, l)
		fmt.Fprintf(out, " %d", l.Addr().(*net.TCPAddr).Port)
	}
	fmt.Fprintln(out)
	return nil
}
