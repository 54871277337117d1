package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// done counts what a flood has done.
var done atomic.Int64

// flood runs a flood, and prints how far it is.
func flood(kind string, args []string) error {
	var work func(worker int) error
	workers := 8
	switch {
	case kind == "share" && len(args) == 0:
		work = floodShare
	case kind == "memory" && len(args) == 0:
		work, workers = floodMemory, 1
	case kind == "packets" && len(args) == 1:
		work = func(int) error { return floodPackets(args[0]) }
	case kind == "calls" && len(args) == 1:
		work, workers = func(int) error { return floodCalls(args[0]) }, 32
	default:
		return fmt.Errorf("unknown flood %q %q", kind, args)
	}
	var group errgroup.Group
	for i := range workers {
		group.Go(func() error { return work(i) })
	}
	go func() {
		for range time.Tick(time.Second) {
			fmt.Fprintln(os.Stdout, done.Load())
		}
	}()
	return group.Wait()
}

// The sizes of the share's flood. What it has on the disk at a time is bounded
// by them, for each worker.
const (
	smallFiles = 1000
	bigEvery   = 200
	bigBytes   = 16 << 20
)

// floodShare works on files in its own directory, over and over.
func floodShare(worker int) error {
	dir := filepath.Join("/flood", strconv.Itoa(worker))
	for {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for i := range smallFiles {
			if err := oneFile(dir, i); err != nil {
				return err
			}
			if i%bigEvery == 0 {
				if err := bigFile(filepath.Join(dir, "big")); err != nil {
					return err
				}
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
}

// oneFile makes, renames, inspects and reads a file.
func oneFile(dir string, i int) error {
	path, final := filepath.Join(dir, "new"), filepath.Join(dir, strconv.Itoa(i))
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		return err
	}
	if err := os.Rename(path, final); err != nil {
		return err
	}
	if _, err := os.Stat(final); err != nil {
		return err
	}
	_, err := os.ReadFile(final)
	done.Add(1)
	return err
}

func bigFile(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	block := make([]byte, 1<<20)
	for range bigBytes / len(block) {
		if _, err := file.Write(block); err != nil {
			return err
		}
	}
	if err := file.Sync(); err != nil {
		return err
	}
	done.Add(1)
	return os.Remove(path)
}

// eatArg is the argument of a process that allocates memory until it is killed.
const eatArg = "eat"

// floodMemory starts one eater after the other. Each is killed by the kernel.
func floodMemory(int) error {
	for {
		if err := exec.Command("/proc/self/exe", eatArg).Run(); err == nil {
			return fmt.Errorf("a process that allocates all memory has ended by itself")
		}
		done.Add(1)
	}
}

// eat touches memory without end, also after the kernel has refused some.
func eat() error {
	page := os.Getpagesize()
	for size := 64 << 20; size >= page; {
		memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			size /= 2
			continue
		}
		for i := 0; i < size; i += page {
			memory[i] = 1
		}
	}
	return fmt.Errorf("no more memory")
}

func floodPackets(address string) error {
	packet := make([]byte, 1024)
	for {
		conn, err := net.Dial("udp", address)
		if err != nil {
			return err
		}
		for range 1000 { // an error is the answer to a packet, and no end
			if _, err := conn.Write(packet); err == nil {
				done.Add(1)
			}
		}
		_ = conn.Close()
	}
}

func floodCalls(address string) error {
	for {
		conn, err := net.DialTimeout("tcp", address, 10*time.Second)
		if err != nil {
			continue // the other end is slow, or the ports are used up for a moment
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // no TIME-WAIT, which would end the flood
		_ = conn.Close()
		done.Add(1)
	}
}

// sink accepts connections and closes them.
func sink(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
}
