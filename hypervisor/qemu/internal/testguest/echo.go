package main

import (
	"fmt"
	"io"
	"net"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

// portEcho is the vsock port that echoes everything.
const portEcho = 1

func serveEcho() error { return serve(portEcho, func(c net.Conn) { _, _ = io.Copy(c, c) }) }

// serve calls handle for each connection to a vsock port, then closes the
// connection.
func serve(port uint32, handle func(net.Conn)) error {
	l, err := vsock.ListenContextID(unix.VMADDR_CID_ANY, port, nil)
	if err != nil {
		return fmt.Errorf("listen on vsock port %d: %w", port, err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				say("accept: %v", err)
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return nil
}
