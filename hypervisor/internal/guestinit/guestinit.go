// Package guestinit is shared by the programs that packages below hypervisor
// boot as a guest's init in their tests, with the kernel and the modules of the
// real guest image.
package guestinit

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// modulesFile is the image's list: one module per line: when to load it, its
// name and its path, in load order (guest-image).
const modulesFile = "/etc/katabox/modules"

// Main runs an init. When run returns or fails, the process ends and the kernel
// panics, which ends the machine.
func Main(run func() error) {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "testguest is a guest's init")
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stdout, "testguest:", err)
	}
}

// LoadModules loads those of the image's modules for which wanted returns true,
// in the order of the list.
func LoadModules(wanted func(when, name string) bool) error {
	f, err := os.Open(modulesFile)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		field := strings.Fields(lines.Text())
		if len(field) < 3 || !wanted(field[0], field[1]) {
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
