package main

import (
	"context"
	"io"
	"net"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/hostkey"
)

// serveKey answers the host's key truly, falsely or not at all.
func (l *liar) serveKey(ctx context.Context, keeper *hostkey.Keeper, port net.Listener) error {
	var answer []byte
	switch l.lie {
	case "silent-key":
	case "refuse-key":
		answer = []byte{api.KeyRefused}
	case "odd-key":
		answer = []byte{42}
	default:
		return keeper.Serve(ctx, port)
	}
	for {
		conn, err := port.Accept()
		if err != nil {
			return err
		}
		go func() {
			_, _ = conn.Write(answer)
			_, _ = io.Copy(io.Discard, conn)
		}()
	}
}
