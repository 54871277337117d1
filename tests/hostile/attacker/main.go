package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "try":
		tryAll(attacks)
		return nil
	case len(args) == 1 && args[0] == "try-root":
		tryAll(slices.DeleteFunc(slices.Clone(attacks), func(a attack) bool { return a.ends }))
		return nil
	case len(args) == 1 && args[0] == "try-user":
		return tryInUserNamespace()
	case len(args) == 2 && args[0] == "try-one":
		return tryOne(args[1])
	case len(args) == 1 && args[0] == eatArg:
		return eat()
	case len(args) == 2 && args[0] == "sink":
		return sink(args[1])
	case len(args) >= 2 && args[0] == "flood":
		return flood(args[1], args[2:])
	}
	return fmt.Errorf("unknown arguments %q", args)
}

// tryAll prints what came of each attack.
func tryAll(attacks []attack) {
	runtime.LockOSThread() // ptrace(2) is the thread's
	for _, a := range attacks {
		fmt.Printf("%s %d\n", a.name, errnoOf(a.call()))
	}
}

// tryOne makes one attack, and returns its error.
func tryOne(name string) error {
	for _, a := range attacks {
		if a.name == name {
			return a.call()
		}
	}
	return fmt.Errorf("unknown attack %q", name)
}

// tryInUserNamespace does what tryAll does with all capabilities in a new user
// namespace and a new mount namespace.
func tryInUserNamespace() error {
	cmd := exec.Command("/proc/self/exe", "try")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	self := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, UidMappings: self, GidMappings: self}
	return cmd.Run()
}

// noErrno is printed for an error that is not the kernel's.
const noErrno = 255

func errnoOf(err error) int {
	var errno unix.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return int(errno)
	}
	fmt.Fprintln(os.Stderr, err)
	return noErrno
}
