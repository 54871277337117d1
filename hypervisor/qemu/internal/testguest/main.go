package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// drivers are what a virtio network card needs, of the modules in the image.
var drivers = []string{
	"virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio", "virtio_pci",
	"failover", "net_failover", "virtio_net",
}

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
	if err := errors.Join(os.MkdirAll("/sys", 0o755), unix.Mount("sysfs", "/sys", "sysfs", 0, "")); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	events, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return fmt.Errorf("open uevents: %w", err)
	}
	if err := unix.Bind(events, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		return fmt.Errorf("bind uevents: %w", err)
	}
	if err := loadModules("/etc/katabox/modules"); err != nil {
		return err
	}
	fmt.Println("testguest: ready")
	buf := make([]byte, 16<<10)
	for {
		n, _, err := unix.Recvfrom(events, buf, 0)
		if err != nil {
			return fmt.Errorf("read uevents: %w", err)
		}
		report(string(buf[:n]))
	}
}

// report prints what a uevent says of an interface of a PCI device: "add" and
// the slots of the bridge and the device, as in hypervisor.PCIPath, with the
// address; "remove" without it. A uevent begins with "action@devpath" (Linux,
// lib/kobject_uevent.c).
func report(uevent string) {
	head, _, _ := strings.Cut(uevent, "\x00")
	action, path, _ := strings.Cut(head, "@")
	parts := strings.Split(path, "/")
	// devices/pci0000:00/BRIDGE/DEVICE/virtioN/net/NAME
	if len(parts) != 8 || parts[6] != "net" {
		return
	}
	mac, err := os.ReadFile(filepath.Join("/sys", path, "address"))
	if err != nil {
		mac = []byte("-")
	}
	fmt.Printf("testguest: %s %s/%s %s\n", action, slot(parts[3]), slot(parts[4]), strings.TrimSpace(string(mac)))
}

// slot is the device number of a PCI address "0000:01:02.0".
func slot(address string) string {
	_, device, _ := strings.Cut(address, ":")
	_, device, _ = strings.Cut(device, ":")
	device, _, _ = strings.Cut(device, ".")
	return device
}

func loadModules(list string) error {
	f, err := os.Open(list)
	if err != nil {
		return err
	}
	defer f.Close()
	paths := make(map[string]string)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if field := strings.Fields(lines.Text()); len(field) == 3 {
			paths[field[1]] = field[2]
		}
	}
	for _, name := range drivers {
		if err := load(paths[name]); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
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
