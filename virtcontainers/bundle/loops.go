package bundle

import (
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
)

// Loop is one of the guest's loop devices that a container gets.
type Loop struct {
	Node
	// Number is its number in the guest.
	Number int64
}

const (
	// loopMajor is the number of loop devices (Linux's admin-guide/devices.txt).
	loopMajor = 7
	// loopMode is the mode of a loop device's node, as Debian's udev sets it.
	loopMode = 0o660
)

// Loops lists the guest's loop devices that the spec gives its container: those that
// it lists beside loop-control, and for a container that may use every device all
// that a guest has. One that is requested and that no guest has is an
// errdefs.ErrInvalidArgument.
func Loops(spec *specs.Spec) ([]Loop, error) {
	rules := deviceRules(spec)
	privileged := allowsAll(rules)
	var loops []Loop
	for _, d := range spec.Linux.Devices {
		if !isGuestLoop(d, spec) || hasLoop(loops, d.Minor) {
			continue
		}
		l := Loop{Node: nodeOf(d), Number: d.Minor}
		l.Optional = privileged
		if !privileged {
			l.Access = accessOf(d, "b", rules)
		}
		switch {
		case l.Access == "" || privileged && d.Minor >= api.LoopDevices:
		case d.Minor >= api.LoopDevices:
			return nil, fmt.Errorf("device %s: a guest has %d loop devices, want /dev/loop0 to /dev/loop%d: %w",
				d.Path, api.LoopDevices, api.LoopDevices-1, errdefs.ErrInvalidArgument)
		default:
			loops = append(loops, l)
		}
	}
	if privileged && !inUserNamespace(spec) {
		loops = withAllLoops(loops)
	}
	return loops, nil
}

// withAllLoops adds the loop devices of a guest that are not listed.
func withAllLoops(loops []Loop) []Loop {
	for n := range int64(api.LoopDevices) {
		if !hasLoop(loops, n) {
			loops = append(loops, Loop{Node{Path: loopPath(n), Mode: loopMode, Access: allAccess, Optional: true}, n})
		}
	}
	return loops
}

func hasLoop(loops []Loop, number int64) bool {
	return slices.ContainsFunc(loops, func(l Loop) bool { return l.Number == number })
}

func loopPath(number int64) string { return fmt.Sprintf("/dev/loop%d", number) }

// isGuestLoop reports whether a device is one of the guest's loop devices and not a
// disk of the host: it is listed under its own name, beside loop-control, which is
// the guest's and hands out the guest's. In a list of all of the host's devices both
// are only listed.
func isGuestLoop(d specs.LinuxDevice, spec *specs.Spec) bool {
	return d.Type == "b" && d.Major == loopMajor && d.Path == loopPath(d.Minor) && !listsAll(spec) &&
		slices.ContainsFunc(spec.Linux.Devices, isLoopControl)
}

func isLoopControl(d specs.LinuxDevice) bool {
	return (d.Type == "c" || d.Type == "u") && d.Major == 10 && d.Minor == 237
}

// inUserNamespace reports whether a container has a user namespace. Its processes may
// not attach files to loop devices, even as root.
func inUserNamespace(spec *specs.Spec) bool {
	return slices.ContainsFunc(spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.UserNamespace })
}
