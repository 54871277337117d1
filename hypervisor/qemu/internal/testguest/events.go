package main

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// report prints a uevent about a device that the tests plug, and uses the
// device. A uevent begins with "action@devpath" (Linux, lib/kobject_uevent.c).
func report(head string) {
	action, path, _ := strings.Cut(head, "@")
	kind := filepath.Base(filepath.Dir(path))
	switch {
	case kind == "net":
		reportNIC(action, path)
	case kind == "block":
		reportDisk(action, path)
	case kind == "cpu" && strings.HasPrefix(path, "/devices/system/"):
		reportCPU(action, path)
	case kind == "memory" && strings.HasPrefix(path, "/devices/system/"):
		reportMemory(action, path)
	}
}

// reportNIC prints an interface of a PCI device: "add", its path as in
// hypervisor.PCIPath and its MAC address; or "remove" and the path.
func reportNIC(action, path string) {
	where := place(path)
	if where == "" {
		return
	}
	mac, err := os.ReadFile(filepath.Join("/sys", path, "address"))
	if err != nil {
		mac = []byte("-")
	}
	say("%s %s %s", action, where, strings.TrimSpace(string(mac)))
}

// place returns a device's address, from its path
// /devices/pci0000:00/BRIDGE/DEVICE/virtioN/...: the slots of bridge and
// device, as in hypervisor.PCIPath, and for a SCSI disk its target and unit.
func place(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) < 6 || !strings.HasPrefix(parts[2], "pci") {
		return ""
	}
	where := slot(parts[3]) + "/" + slot(parts[4])
	if len(parts) > 8 && strings.HasPrefix(parts[6], "host") {
		_, address, _ := strings.Cut(parts[8], ":")
		_, lun, _ := strings.Cut(address, ":")
		where += " " + lun
	}
	return where
}

// slot returns the device number of a PCI address "0000:01:02.0".
func slot(address string) string {
	_, device, _ := strings.Cut(address, ":")
	_, device, _ = strings.Cut(device, ":")
	device, _, _ = strings.Cut(device, ".")
	return device
}

// reportCPU brings a CPU online and prints which CPUs are online.
func reportCPU(action, path string) {
	if action == "add" {
		if err := os.WriteFile(filepath.Join("/sys", path, "online"), []byte("1"), 0); err != nil {
			say("%v", err)
		}
	}
	if action != "add" && action != "remove" {
		return
	}
	sayCPUs(action)
}

// sayCPUs prints which CPUs are online.
func sayCPUs(action string) {
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		say("%v", err)
	}
	say("%s cpu, online %s", action, strings.TrimSpace(string(online)))
}

// reportMemory brings a block of memory online, as movable memory, and prints
// how much more there is than at boot.
func reportMemory(action, path string) {
	if action == "add" {
		if err := os.WriteFile(filepath.Join("/sys", path, "state"), []byte("online_movable"), 0); err != nil {
			say("%v", err)
		}
	}
	if action == "add" || action == "remove" {
		say("memory +%d MiB", (memory()-memoryAtBoot)>>20)
	}
}

// memoryAtBoot is memory's result at boot.
var memoryAtBoot = memory()

// memory returns the kernel's total memory, in bytes.
func memory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		say("%v", err)
	}
	return info.Totalram * uint64(info.Unit)
}
