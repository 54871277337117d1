// Command bootinit is the /init of this program's boot test: it loads the "boot"
// modules and checks that they work, loads the "demand" and "kernel" modules,
// prints how long each took, and powers the machine off. It is never part of a
// pod's image.
package main

import (
	"archive/zip"
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	// The console is the test's only channel.
	fmt.Printf("INIT boot_us=%d\n", sinceBoot().Microseconds())
	for _, step := range []func() error{
		func() error { return load("boot") },
		checkBoot,
		func() error { return load("demand") },
		func() error { return checkFilesystem("erofs") },
		func() error { return load("kernel") },
	} {
		if err := step(); err != nil {
			fmt.Println("FAILED", err)
		}
	}
	fmt.Printf("READY boot_us=%d\n", sinceBoot().Microseconds())
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("FAILED power off:", err)
	}
}

func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// load loads the modules of one group of the list.
func load(when string) error {
	list, err := os.Open("/etc/katabox/modules")
	if err != nil {
		return err
	}
	defer list.Close()
	begin := time.Now()
	count := 0
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 {
			return fmt.Errorf("read list: bad line %q", lines.Text())
		}
		if fields[0] != when {
			continue
		}
		start := time.Now()
		if err := insert(fields[2]); err != nil {
			return fmt.Errorf("load %s: %w", fields[1], err)
		}
		count++
		fmt.Printf("LOADED %s us=%d\n", fields[1], time.Since(start).Microseconds())
	}
	fmt.Printf("GROUP %s count=%d us=%d\n", when, count, time.Since(begin).Microseconds())
	return lines.Err()
}

// insert loads a module from a file or from a zip file.
func insert(path string) error {
	archive, name, packed := strings.Cut(path, ".zip/")
	if packed {
		return insertPacked(archive+".zip", name)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

func insertPacked(archive, name string) error {
	r, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer r.Close()
	ko, err := fs.ReadFile(r, name)
	if err != nil {
		return err
	}
	return unix.InitModule(ko, "")
}

// checkBoot checks what a pod needs from the kernel at its start.
func checkBoot() error {
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	for _, name := range []string{"virtiofs", "overlay", "ext4", "cgroup2", "tmpfs"} {
		if err := checkFilesystem(name); err != nil {
			return err
		}
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	if _, err := os.Stat("/sys/bus/virtio/drivers/vmw_vsock_virtio_transport"); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make vsock socket: %w", err)
	}
	return unix.Close(fd)
}

func checkFilesystem(name string) error {
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(string(known)), name) {
		return fmt.Errorf("find %s: not in /proc/filesystems", name)
	}
	return nil
}
