package wire

import "time"

// SetupName is the file with the Setup in the machine's initramfs.
const SetupName = "setup.json"

// The names of the machine's devices.
const (
	// RootTag is the share with the build machine's root file system.
	RootTag = "root"
	// ResultsTag is the share that the machine may write to.
	ResultsTag = "results"
	// Port is the virtio-serial port of the frames.
	Port = "katabox.kvmhost"
)

// BeatPeriod is the time between two heartbeats of the machine.
const BeatPeriod = 10 * time.Second

// Setup is the configuration of the machine's init.
type Setup struct {
	// Modules are files of the initramfs, in load order: what the first
	// mounts need.
	Modules []string `json:"modules"`
	// ModuleTree is the directory with the kernel's modules, for
	// /lib/modules; a path of the build machine.
	ModuleTree string `json:"module_tree"`
	// Wanted are modules that modprobe loads once the root is mounted. A
	// failure is a problem in the Hello.
	Wanted []string `json:"wanted"`
	// Keep are directories that stay visible when something is mounted over a
	// parent.
	Keep []string `json:"keep"`
	// Results is where the writable share is mounted.
	Results string `json:"results"`
	// Binds are mounted in the new root, by target.
	Binds map[string]string `json:"binds,omitempty"`
	// Devices are files that must exist after the setup; a missing one is a
	// problem in the Hello.
	Devices []string `json:"devices"`
}
