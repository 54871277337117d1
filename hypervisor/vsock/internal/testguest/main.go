package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

// The ports served; the tests know them by the same numbers.
const (
	portEcho    = 1
	portSink    = 2
	portSource  = 3
	portCommand = 4
	portStall   = 5
	portDiscard = 6
	portSmall   = 7
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "testguest is a guest's init")
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Println("testguest:", err)
	}
	// An init that ends panics the kernel, which ends the machine.
}

func run() error {
	if err := loadModules("/etc/katabox/modules"); err != nil {
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

// loadModules loads those that the image says are for boot.
func loadModules(list string) error {
	f, err := os.Open(list)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		field := strings.Fields(lines.Text())
		if len(field) < 3 || field[0] != "boot" {
			continue
		}
		if err := load(field[2]); err != nil {
			return fmt.Errorf("load %s: %w", field[1], err)
		}
	}
	return lines.Err()
}

func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}
