package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// Record describes a saved sandbox.
type Record struct {
	Created time.Time `json:"created"`
	Machine Machine   `json:"machine"`
	// Container is the sandbox's only container.
	Container Container `json:"container"`
}

// Machine says which machines can continue from the saved one.
type Machine struct {
	// VMM is the VMM's version.
	VMM string `json:"vmm"`
	// Description is that of the machine (hypervisor.Monitor's Describe).
	Description []string `json:"description"`
	// CPU describes the host's CPU, if the guest sees it; otherwise it is empty.
	CPU string `json:"cpu,omitempty"`
	// MaxVCPUs and MaxMemoryMiB are the machine's (hypervisor.Spec), which may be due to
	// the host on which it was saved. Checkpoints of earlier versions have 0.
	MaxVCPUs     uint32            `json:"max_vcpus,omitempty"`
	MaxMemoryMiB uint64            `json:"max_memory_mib,omitempty"`
	Layout       hypervisor.Layout `json:"layout"`
}

// Container is what a container that continues from the saved one must have.
type Container struct {
	ID string `json:"id"`
	// ShareID is the id under which its files are in the share: that of the first
	// container of all that continued from each other.
	ShareID  string `json:"share_id"`
	Terminal bool   `json:"terminal,omitempty"`
	// PID is its init's in the guest.
	PID uint32 `json:"pid"`
	// Mounts are the destinations of its mounts from the host, and "/", and where
	// the guest finds them.
	Mounts map[string]string `json:"mounts"`
}

// Check returns why a machine cannot continue from the saved one, or nil.
func (m Machine) Check(has Machine) error {
	if m.VMM != has.VMM {
		return fmt.Errorf("it was saved by version %s of the VMM, this one is %s: %w", m.VMM, has.VMM, errdefs.ErrFailedPrecondition)
	}
	if err := checkCPU(m.CPU, has.CPU); err != nil {
		return err
	}
	switch {
	case !sameRate(m.Layout.TSCKHz, has.Layout.TSCKHz):
		return fmt.Errorf("it was saved on a host whose time stamp counter runs at %d kHz, this one's at %d kHz, and without KVM its clocks would run wrong: %w",
			m.Layout.TSCKHz, has.Layout.TSCKHz, errdefs.ErrFailedPrecondition)
	case slices.Equal(m.Description, has.Description):
		return nil
	}
	for i, arg := range m.Description {
		if i >= len(has.Description) || has.Description[i] != arg {
			return fmt.Errorf("its machine has %s%q, this one %q (the configuration has changed?): %w",
				option(m.Description, i), arg, strings.Join(has.Description[min(i, len(has.Description)):min(i+1, len(has.Description))], ""), errdefs.ErrFailedPrecondition)
		}
	}
	return fmt.Errorf("this machine has %q besides (the configuration has changed?): %w", has.Description[len(m.Description):], errdefs.ErrFailedPrecondition)
}

// rateTolerance is the divisor of the largest difference between two measurements of the
// same rate: each is off by 0.01 % at most. A restored machine's record has the rate of
// its present host, so that several restores may differ by more.
const rateTolerance = 1000

// sameRate reports whether two rates are the same as far as is known: 0 is an unknown
// one, as in checkpoints of earlier versions.
func sameRate(a, b uint64) bool {
	if a == 0 || b == 0 {
		return true
	}
	return max(a, b)-min(a, b) <= min(a, b)/rateTolerance
}

// option returns the option to which an argument belongs, and a space; empty for an
// argument that is an option.
func option(args []string, i int) string {
	if i == 0 || !strings.HasPrefix(args[i-1], "-") || strings.HasPrefix(args[i], "-") {
		return ""
	}
	return args[i-1] + " "
}

// maxRecord bounds a record, in bytes.
const maxRecord = 1 << 20

func (r Record) encode() ([]byte, error) {
	text, err := json.Marshal(r)
	if err == nil && len(text) > maxRecord {
		err = fmt.Errorf("the record has %d bytes, want at most %d", len(text), maxRecord)
	}
	return text, err
}
