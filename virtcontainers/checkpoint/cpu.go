package checkpoint

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
)

// cpuModel are the lines of /proc/cpuinfo that identify a CPU. The microcode is not
// among them: it changes with updates of the host.
var cpuModel = []string{"vendor_id", "cpu family", "model", "model name", "stepping"}

// maxNamed bounds how many flags an error names: a record may be forged.
const maxNamed = 16

// checkCPU returns why a guest that was saved on one CPU cannot continue on another, or
// nil. They must be of one model. The other one may have more flags, as after an update
// of the host: the guest does not use them.
func checkCPU(saved, has string) error {
	differ, lacks := otherModel(saved, has), lackedFlags(saved, has)
	switch {
	case differ != nil:
		if lacks != "" {
			differ = append(differ, lacks)
		}
		return fmt.Errorf("it was saved on a host with another CPU (%.100s), this one has %.100s: %s: %w",
			cpuName(saved), cpuName(has), strings.Join(differ, ", "), errdefs.ErrFailedPrecondition)
	case lacks != "":
		return fmt.Errorf("it was saved on a host whose CPU is of the same model (%.100s) and offers more: %s: %w",
			cpuName(saved), lacks, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// otherModel says which of cpuModel differ.
func otherModel(saved, has string) (differ []string) {
	for _, name := range cpuModel {
		if was, is := cpuLine(saved, name), cpuLine(has, name); was != is {
			differ = append(differ, fmt.Sprintf("%s is %.100q there and %.100q here", name, was, is))
		}
	}
	return differ
}

// lackedFlags says which flags of the saved CPU the other one has not; empty if it has all.
func lackedFlags(saved, has string) string {
	missing := missingFlags(saved, has)
	if len(missing) == 0 {
		return ""
	}
	lacks := fmt.Sprintf("this one lacks the flags %q", missing[:min(len(missing), maxNamed)])
	if more := len(missing) - maxNamed; more > 0 {
		lacks += fmt.Sprintf(" and %d more", more)
	}
	return lacks
}

// cpuName names a CPU.
func cpuName(cpu string) string {
	if name := cpuLine(cpu, "model name"); name != "" {
		return name
	}
	return "an unknown one"
}

// cpuLine returns what a line of a CPU's description says; empty if it has none.
func cpuLine(cpu, name string) string {
	for line := range strings.Lines(cpu) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
