package qemu

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/katabox/katabox/hypervisor"
)

// Host has the paths that DetectAccel inspects. The zero value is the real
// host.
type Host struct {
	KVM     string // default /dev/kvm
	CPUInfo string // default /proc/cpuinfo
}

// DetectAccel returns the accelerator to use here: KVM if it can be opened and
// the CPU has the extensions that a stock guest needs, otherwise TCG, with the
// reason. Some hosts have a /dev/kvm without vmx or svm, which runs only guests
// that were built for it.
func DetectAccel(h Host) (accel hypervisor.Accel, reason string) {
	if h.KVM == "" {
		h.KVM = "/dev/kvm"
	}
	if h.CPUInfo == "" {
		h.CPUInfo = "/proc/cpuinfo"
	}
	f, err := os.OpenFile(h.KVM, os.O_RDWR, 0)
	if err != nil {
		return hypervisor.AccelTCG, fmt.Sprintf("KVM cannot be used: %v", err)
	}
	_ = f.Close()
	ok, err := hasVirtualisation(h.CPUInfo)
	if err != nil {
		return hypervisor.AccelTCG, fmt.Sprintf("KVM is not used, the CPU is unknown: %v", err)
	}
	if !ok {
		return hypervisor.AccelTCG, fmt.Sprintf("KVM cannot be used: %s shows neither vmx nor svm", h.CPUInfo)
	}
	return hypervisor.AccelKVM, ""
}

// hasVirtualisation looks for Intel's and AMD's extensions in the CPU flags.
func hasVirtualisation(cpuinfo string) (bool, error) {
	f, err := os.Open(cpuinfo)
	if err != nil {
		return false, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, flags, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(name) != "flags" {
			continue
		}
		for _, flag := range strings.Fields(flags) {
			if flag == "vmx" || flag == "svm" {
				return true, nil
			}
		}
	}
	return false, lines.Err()
}
