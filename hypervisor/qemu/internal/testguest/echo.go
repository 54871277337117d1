package main

import (
	"fmt"
	"io"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

// portEcho is the vsock port that gives everything back.
const portEcho = 1

func serveEcho() error {
	l, err := vsock.ListenContextID(unix.VMADDR_CID_ANY, portEcho, nil)
	if err != nil {
		return fmt.Errorf("listen on vsock port %d: %w", portEcho, err)
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
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return nil
}
