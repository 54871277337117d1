package main

import (
	"fmt"
	"net"
	"sync"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/internal/guestinit"
)

// The ports served; the tests have the same numbers.
const (
	portEcho    = 1
	portSink    = 2
	portSource  = 3
	portCommand = 4
	portStall   = 5
	portDiscard = 6
	portSmall   = 7
)

func main() { guestinit.Main(run) }

func run() error {
	if err := guestinit.LoadModules(func(when, _ string) bool { return when == "boot" }); err != nil {
		return err
	}
	services := map[uint32]func(*vsock.Conn){
		portEcho:    echo,
		portSink:    sink,
		portSource:  source,
		portCommand: command,
		portStall:   func(*vsock.Conn) { select {} },
		portDiscard: discard,
		portSmall:   small,
	}
	var all sync.WaitGroup
	for port, serve := range services {
		l, err := vsock.ListenContextID(unix.VMADDR_CID_ANY, port, nil)
		if err != nil {
			return fmt.Errorf("listen on %d: %w", port, err)
		}
		all.Go(func() { accept(l, serve) })
	}
	fmt.Println("testguest: ready")
	all.Wait()
	return nil
}

func accept(l net.Listener, serve func(*vsock.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Println("testguest: accept:", err)
			return
		}
		go func() {
			defer c.Close()
			serve(c.(*vsock.Conn))
		}()
	}
}
