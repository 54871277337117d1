package harness

import (
	"fmt"
	"os"
)

// Runtime is what containerd runs containers with.
type Runtime struct {
	// Name is "runc" or "kata".
	Name string
	// Type is containerd's name for it.
	Type string
	// VM reports whether each pod is a virtual machine.
	VM bool
}

// The runtimes.
var (
	Runc = Runtime{Name: "runc", Type: "io.containerd.runc.v2"}
	Kata = Runtime{Name: "kata", Type: "io.containerd.kata.v2", VM: true}
)

// EnvRuntime chooses the runtime of the suites: "kata" (when unset) or "runc".
const EnvRuntime = "KATABOX_TEST_RUNTIME"

// RuntimeFromEnv returns the runtime that EnvRuntime names.
func RuntimeFromEnv() (Runtime, error) {
	switch name := os.Getenv(EnvRuntime); name {
	case "", Kata.Name:
		return Kata, nil
	case Runc.Name:
		return Runc, nil
	default:
		return Runtime{}, fmt.Errorf("%s=%s: want runc or kata", EnvRuntime, name)
	}
}

// missing lists what must be built before the runtime can run, with the
// command that builds it.
func (r Runtime) missing(l Layout) error {
	if !r.VM {
		return nil
	}
	type need struct{ path, command string }
	needs := []need{
		{l.Shim(), "make build"},
		{l.Kernel(), "make guest-image"},
		{l.Initrd(), "make guest-image"},
		{DefaultQEMU, "make deps"},
	}
	if daemon := (KataConfig{}).withDefaults(l).Virtiofsd; daemon != OwnVirtiofs {
		needs = append(needs, need{daemon, "make deps"})
	}
	for _, n := range needs {
		if _, err := os.Stat(n.path); err != nil {
			return fmt.Errorf("%w: run %q", err, n.command)
		}
	}
	return nil
}
