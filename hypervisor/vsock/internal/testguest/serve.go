package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

// echo echoes everything, then ends its side.
func echo(c *vsock.Conn) {
	_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 64<<10))
	_ = c.CloseWrite()
	// The host closes when it has received everything.
	_, _ = io.Copy(io.Discard, c)
}

// sink reads to the end and answers with length and hash.
func sink(c *vsock.Conn) {
	sum := sha256.New()
	n, err := io.CopyBuffer(sum, struct{ io.Reader }{c}, make([]byte, 256<<10))
	if err != nil {
		return
	}
	answer := binary.LittleEndian.AppendUint64(nil, uint64(n))
	_, _ = c.Write(sum.Sum(answer))
}

// discard reads to the end and answers with one byte.
func discard(c *vsock.Conn) {
	buf := make([]byte, 256<<10)
	for {
		if _, err := c.Read(buf); err != nil {
			_, _ = c.Write(buf[:1])
			return
		}
	}
}

// small sends 64 bytes at a time until the host has enough.
func small(c *vsock.Conn) {
	var p [64]byte
	for {
		if _, err := c.Write(p[:]); err != nil {
			return
		}
	}
}

// source sends the requested number of bytes.
func source(c *vsock.Conn) {
	var want [8]byte
	if _, err := io.ReadFull(c, want[:]); err != nil {
		return
	}
	left := binary.LittleEndian.Uint64(want[:])
	block := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
	for left > 0 {
		n, err := c.Write(block[:min(left, uint64(len(block)))])
		if err != nil {
			return
		}
		left -= uint64(n)
	}
}

// command obeys lines: "dial PORT N" dials the host N times concurrently and
// answers how many dials it refused; "crash" resets the machine.
func command(c *vsock.Conn) {
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		var port uint32
		var n int
		if lines.Text() == "crash" {
			_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
			return
		}
		if _, err := fmt.Sscanf(lines.Text(), "dial %d %d", &port, &n); err != nil {
			fmt.Fprintln(c, "error:", err)
			continue
		}
		fmt.Fprintln(c, dialMany(port, n))
	}
}

func dialMany(port uint32, n int) int64 {
	var all sync.WaitGroup
	var refused atomic.Int64
	for range n {
		all.Go(func() {
			c, err := vsock.Dial(vsock.Host, port, nil)
			switch {
			case errors.Is(err, unix.ECONNRESET): // the answer was a reset
				refused.Add(1)
			case err != nil:
				fmt.Fprintln(os.Stdout, "testguest: dial:", err)
			default:
				_ = c.Close()
			}
		})
	}
	all.Wait()
	return refused.Load()
}
