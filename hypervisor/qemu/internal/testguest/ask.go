package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// portAsk is the vsock port that reads one line, a question, answers and
// closes.
const portAsk = 2

func serveAsk() error { return serve(portAsk, answer) }

func answer(c net.Conn) {
	question, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return
	}
	reply, err := map[string]func() (string, error){"rng": readRNG, "memory": useMemory, "panic": end}[strings.TrimSpace(question)]()
	if err != nil {
		reply = "error: " + err.Error()
	}
	_, _ = io.WriteString(c, reply)
}

// readRNG returns which random number generator the kernel uses, and some of
// its output (Linux, Documentation/admin-guide/hw_random.rst).
func readRNG() (string, error) {
	current, err := os.ReadFile("/sys/class/misc/hw_random/rng_current")
	if err != nil {
		return "", err
	}
	f, err := os.Open("/dev/hwrng")
	if err != nil {
		return "", err
	}
	defer f.Close()
	numbers := make([]byte, 64)
	if _, err := io.ReadFull(f, numbers); err != nil {
		return "", err
	}
	return strings.TrimSpace(string(current)) + " " + string(numbers), nil
}

// usedBytes is what useMemory uses.
const usedBytes = 100 << 20

// useMemory uses memory and gives it back to the kernel.
func useMemory() (string, error) {
	data, err := unix.Mmap(-1, 0, usedBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return "", err
	}
	for i := 0; i < len(data); i += os.Getpagesize() {
		data[i] = 1
	}
	return "used", errors.Join(unix.Munmap(data))
}

// end panics the kernel by ending init.
func end() (string, error) {
	os.Exit(1)
	return "", nil
}
