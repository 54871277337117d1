package sizing

import (
	"context"

	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// podHugepages are the huge pages that a pod's containers may use together, if their
// specs do not say what each may use: containerd leaves that out by default
// (disable_hugetlb_controller), but the kubelet has set it for the pod's cgroup. They
// are part of the machine as long as the pod exists.
type podHugepages struct {
	known  bool
	limits []specs.LinuxHugepageLimit
	need   resource.Need
}

// admitHugepages finds the pod's huge pages when it gets a container whose spec does not
// limit its own. The caller holds resizes. It does nothing for a pod that continues from
// a saved machine, which has them, nor if the machine cannot grow by them.
func (p *Pod) admitHugepages(ctx context.Context, c Container) error {
	r := c.Spec.Linux.Resources
	if p.hugepages.known || c.Pause || r != nil && len(r.HugepageLimits) > 0 || p.opts.Most != nil {
		return nil
	}
	if p.static() {
		return p.useHugepages(nil)
	}
	limits, err := p.above.Hugepages()
	if err != nil {
		log.G(ctx).WithError(err).Warn("the pod's limits of huge pages are not known: the guest reserves none for the pod")
		return nil // the next container's admission looks again
	}
	return p.useHugepages(limits)
}

func (p *Pod) useHugepages(limits []specs.LinuxHugepageLimit) error {
	need, err := resource.OfContainer(&specs.LinuxResources{HugepageLimits: limits})
	if err != nil {
		return err
	}
	p.hugepages = podHugepages{known: true, limits: limits, need: need}
	return nil
}
