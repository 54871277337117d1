package wire

import "time"

// SetupName is the file with the Setup in the machine's initramfs.
const SetupName = "setup.json"

// The names of what QEMU gives the machine.
const (
	// RootTag is the share with the build machine's root file system.
	RootTag = "root"
	// ResultsTag is the share that the machine may write to.
	ResultsTag = "results"
	// Port is the virtio-serial port of the frames.
	Port = "katabox.kvmhost"
)

// BeatPeriod is how often the machine says that it is alive.
const BeatPeriod = 10 * time.Second

// Setup tells the machine's init what it is to make of the machine.
type Setup struct {
	// Modules are files of the initramfs, in load order: what the first
	// mounts need.
	Modules []string `json:"modules"`
	// ModuleTree is the directory with the kernel's modules, for
	// /lib/modules; a path of the build machine.
	ModuleTree string `json:"module_tree"`
	// Wanted are modules that modprobe loads once the root is there. One
	// that fails is a problem in the Hello.
	Wanted []string `json:"wanted"`
	// Keep are directories that stay visible when something is mounted over
	// what is above them.
	Keep []string `json:"keep"`
	// Results is where the writable share is mounted.
	Results string `json:"results"`
	// Binds are mounted in the new root, by target.
	Binds map[string]string `json:"binds,omitempty"`
	// Devices are files that must exist after the setup; a missing one is a
	// problem in the Hello.
	Devices []string `json:"devices"`
}
