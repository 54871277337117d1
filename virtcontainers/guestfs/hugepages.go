package guestfs

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume"
)

// pageSize is how the OCI runtime spec writes the size of a huge page
// (config-linux.md, hugepageLimits).
var pageSize = regexp.MustCompile(`^[1-9][0-9]{0,9}[KMG]B$`)

// reserveHugepages makes the guest's kernel reserve as many huge pages as the
// container may use, for the container's lifetime: by default it reserves none.
func (c *Container) reserveHugepages() error {
	for _, limit := range c.hugepageLimits() {
		if !reservable(limit) {
			continue
		}
		if !pageSize.MatchString(limit.Pagesize) {
			return fmt.Errorf("linux.resources.hugepageLimits: the page size is %q, want one such as 2MB: %w", limit.Pagesize, errdefs.ErrInvalidArgument)
		}
		c.add(&api.Storage{Driver: "hugetlbfs", Target: c.pod.volumes.newTarget(), Options: hugepageOptions(limit)}, "hugepageLimits of "+limit.Pagesize)
	}
	return nil
}

func (c *Container) hugepageLimits() []specs.LinuxHugepageLimit {
	if r := c.Bundle.Spec.Linux.Resources; r != nil {
		return r.HugepageLimits
	}
	return nil
}

// reservable reports whether it is a limit of a number of pages above 0.
func reservable(limit specs.LinuxHugepageLimit) bool {
	return limit.Limit > 0 && limit.Limit <= math.MaxInt64
}

func hugepageOptions(limit specs.LinuxHugepageLimit) []string {
	return []string{"pagesize=" + strings.TrimSuffix(limit.Pagesize, "B"), fmt.Sprintf("size=%d", limit.Limit)}
}

// ReservePodHugepages makes the guest's kernel reserve the huge pages that all of the
// pod's containers may use together, for the pod's lifetime, if the container's spec
// does not say what it may use. It is called after Steps, when the machine has the memory.
// It logs which of the container's volumes of huge pages can have none.
func (c *Container) ReservePodHugepages(ctx context.Context, limits []specs.LinuxHugepageLimit) error {
	if len(c.hugepageLimits()) > 0 {
		return nil
	}
	limits = slices.DeleteFunc(slices.Clone(limits), func(l specs.LinuxHugepageLimit) bool { return !reservable(l) })
	for _, limit := range limits {
		if err := c.pod.reserveHugepages(ctx, limit); err != nil {
			return fmt.Errorf("reserve the pod's %d bytes in huge pages of %s: %w", limit.Limit, limit.Pagesize, err)
		}
	}
	if len(limits) == 0 {
		for _, source := range c.hugeVolumes {
			log.G(ctx).WithField("container", c.ID).WithField("volume", source).
				Warn("the volume of huge pages can have no page: neither the container nor its pod has a limit of huge pages above 0 (hugepages-2Mi), or static_sandbox_resource_mgmt is true")
		}
	}
	return nil
}

// reserveHugepages reserves huge pages of a size once. The other volumes' keys are paths.
func (p *Pod) reserveHugepages(ctx context.Context, limit specs.LinuxHugepageLimit) error {
	_, err := p.volumes.once(ctx, "huge pages of "+limit.Pagesize, func(target string) error {
		return p.addHugepages(ctx, target, hugepageOptions(limit))
	})
	return err
}

func (p *Pod) addHugepages(ctx context.Context, target string, options []string) error {
	return p.guest.AddStorages(ctx, []*api.Storage{{Driver: "hugetlbfs", Target: target, Options: options}})
}

// noteHugepages remembers a volume of huge pages that has no size.
func (c *Container) noteHugepages(v volume.Volume) {
	if v.Kind == volume.Hugepages && !slices.ContainsFunc(v.Options, func(o string) bool { return strings.HasPrefix(o, "size=") }) {
		c.hugeVolumes = append(c.hugeVolumes, v.Source)
	}
}
