package bundle

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

var (
	loopControl = char("/dev/loop-control", 10, 237)
	everything  = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
	// eachKind is BuildKit's way to allow everything (util/entitlements/security).
	eachKind = []specs.LinuxDeviceCgroup{{Allow: true, Type: "c", Access: "rwm"}, {Allow: true, Type: "b", Access: "rwm"}}
)

func inUsers(s *specs.Spec) *specs.Spec {
	s.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.UserNamespace}}
	return s
}

// Which loop devices of the guest a container gets, and which listed ones are disks of
// the host.
func TestLoops(t *testing.T) {
	const all = "0? 1? 2? 3? 4? 5? 6? 7?"
	loop := func(n int64) specs.LinuxDevice { return block(fmt.Sprintf("/dev/loop%d", n), 7, n) }
	deny := []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}, {Access: "rwm"}}
	for name, test := range map[string]struct {
		spec         *specs.Spec
		loops, disks string
	}{
		"not privileged":                {withDevices(nil, char("/dev/fuse", 10, 229)), "", ""},
		"a disk alone":                  {withDevices(nil, loop(3)), "", "/dev/loop3"},
		"with loop-control":             {withDevices(nil, loopControl, loop(3)), "3", ""},
		"under another name":            {withDevices(nil, loopControl, block("/dev/xvda", 7, 3)), "", "/dev/xvda"},
		"readable":                      {withDevices([]specs.LinuxDeviceCgroup{rule(true, "b", 7, 3, "r")}, loopControl, loop(3)), "3r", ""},
		"denied":                        {withDevices([]specs.LinuxDeviceCgroup{rule(false, "b", 7, 3, "rwm")}, loopControl, loop(3)), "", ""},
		"privileged":                    {withDevices(everything), all, ""},
		"privileged no more":            {withDevices(deny), "", ""},
		"privileged with a disk":        {withDevices(everything, loop(3)), all, "/dev/loop3"},
		"privileged with a list of all": {withDevices(everything, null, loopControl, loop(3)), all, ""},
		"as BuildKit":                   {withDevices(eachKind, loopControl, loop(3), loop(9)), "3? 0? 1? 2? 4? 5? 6? 7?", ""},
		"character devices only":        {withDevices(eachKind[:1]), "", ""},
		"in a user namespace":           {inUsers(withDevices(everything)), "", ""},
		"requested in a user namespace": {inUsers(withDevices(everything, loopControl, loop(3))), "3?", ""},
	} {
		got, err := Loops(test.spec)
		var loops, disks []string
		for _, l := range got {
			text := fmt.Sprint(l.Number) + strings.TrimSuffix(l.Access, "rwm")
			if l.Optional {
				text += "?"
			}
			loops = append(loops, text)
		}
		h := fakeDevices(t, map[string]string{"7:3": "loop3"})
		blocks, listErr := h.list(test.spec, nil)
		for _, b := range blocks {
			disks = append(disks, b.Path)
		}
		if strings.Join(loops, " ") != test.loops || strings.Join(disks, " ") != test.disks || err != nil || listErr != nil {
			t.Errorf("%s: loop devices %q, disks %q, want %q and %q (%v, %v)", name, loops, disks, test.loops, test.disks, err, listErr)
		}
	}
	_, err := Loops(withDevices(nil, loopControl, loop(8)))
	if want := "device /dev/loop8: a guest has 8 loop devices, want /dev/loop0 to /dev/loop7"; !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
