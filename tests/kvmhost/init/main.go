// Command init is the first process of the test bed's machine. It loads
// modules, switches to the build machine's root file system, and starts itself
// again to run the commands that arrive over a virtio-serial port. It never
// runs on the host.
//
//	/init          mounts, waits for every orphan, powers off at the end
//	  └─ serve     runs one command after the other
//	       └─ the command
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == serveWord {
		if err := serve(); err != nil {
			complain(err)
		}
		return
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: this is the init of a virtual machine")
		os.Exit(2)
	}
	if err := run(); err != nil {
		complain(err)
	}
	unix.Sync()
	complain(unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
	// The kernel panics when init ends, and the machine ends with it (panic=-1).
}

// complain says on the console why the machine ends.
func complain(err error) { fmt.Fprintln(os.Stderr, "kvmhost init:", err) }

// serveWord is the argument of the process that runs commands.
const serveWord = "serve"

// run boots the machine and starts the server; it returns when the server has
// exited.
func run() error {
	// /init disappears with the initramfs.
	self, err := os.ReadFile("/init")
	if err != nil {
		return fmt.Errorf("read this program: %w", err)
	}
	setup, err := readSetup()
	if err != nil {
		return err
	}
	problems, err := boot(setup)
	if err != nil {
		return err
	}
	if err := os.WriteFile(serverPath, self, 0o755); err != nil {
		return fmt.Errorf("write the server: %w", err)
	}
	cmd := exec.Command(serverPath, serveWord)
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, asEnv(problems)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	return reapUntil(cmd.Process.Pid)
}

// serverPath is where the program is in the new root.
const serverPath = "/run/kvmhost-init"

// reapUntil waits for orphans until the process pid has ended.
func reapUntil(pid int) error {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for processes: %w", err)
		case got == pid && status.ExitStatus() != 0:
			return fmt.Errorf("the server ended: %#x", uint32(status))
		case got == pid:
			return nil
		}
	}
}
