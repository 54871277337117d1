package qemu

import (
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

// planRNG gives QEMU the file in a descriptor set, as planDisk does.
func planRNG(d hypervisor.RNG, set int) (plan, error) {
	if d.File == nil {
		return plan{}, fmt.Errorf("no file of random numbers: %w", errdefs.ErrInvalidArgument)
	}
	_, flags, err := statFile(d.File)
	if err != nil {
		return plan{}, fmt.Errorf("inspect file of random numbers %s: %w", d.File.Name(), err)
	}
	if flags&unix.O_ACCMODE != unix.O_RDONLY {
		return plan{}, fmt.Errorf("file of random numbers %s: not open for reading only: %w", d.File.Name(), errdefs.ErrInvalidArgument)
	}
	source := "rng-" + d.ID
	return plan{
		files: []passed{{set: set, file: d.File}},
		backend: &backend{
			add: command{"object-add", map[string]any{ // qapi/qom.json, RngRandomProperties
				"qom-type": "rng-random", "id": source, "filename": fmt.Sprintf("/dev/fdset/%d", set),
			}},
			remove: command{objectDel, map[string]any{"id": source}},
		},
		device: onPodBus(d.ID, map[string]any{"driver": ModelRNG, "disable-legacy": "on", "rng": source}),
	}, nil
}

// planBalloon plans a balloon for free page reporting (virtio 1.2, section
// 5.5.6.7). deflate-on-oom would let the guest take back the balloon's pages
// when it is short of memory, if the balloon were ever inflated.
func planBalloon(d hypervisor.Balloon) plan {
	return plan{device: onPodBus(d.ID, map[string]any{
		"driver": ModelBalloon, "disable-legacy": "on",
		"free-page-reporting": true, "deflate-on-oom": true,
	})}
}
