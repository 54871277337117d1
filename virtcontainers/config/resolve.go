package config

import "math"

const (
	maxUint32 = math.MaxUint32
	// maxVCPUs is Kata's limit for amd64. (A q35 of more than 255 needs an
	// interrupt remapper: QEMU's hw/i386/x86-common.c.)
	maxVCPUs = 240
)

// hostVCPUs is the most vCPUs that the host can give.
func (d *draft) hostVCPUs() uint32 {
	cpus := d.cpus
	if cpus == 0 {
		cpus = HostCPUs()
	}
	return uint32(min(max(cpus, 1), maxVCPUs))
}

// mostVCPUs is the most that both the host and the configuration allow.
func (d *draft) mostVCPUs() uint32 {
	if d.maxVCPUs == 0 {
		return d.hostVCPUs()
	}
	return min(d.hostVCPUs(), d.maxVCPUs)
}

// resolve computes the effective values of keys that depend on each other.
func (d *draft) resolve() {
	d.resolveVCPUs()
	if m := &d.Hypervisor.Memory; m.HugePages && m.Dir != "" {
		d.warnf("hypervisor.qemu.file_mem_backend = %q is ignored: enable_hugepages takes the memory from huge pages", m.Dir)
		m.Dir = ""
	}
	if d.guestEmptyDir {
		d.Runtime.EmptyDirMode = EmptyDirBlock
	}
	d.resolveUsers()
}

// resolveUsers keeps the VMMs' user ids in their valid range, and warns where
// they run as root.
func (d *draft) resolveUsers() {
	h := &d.Hypervisor
	if last := maxUID - h.FirstUID + 1; h.UIDs > last {
		d.warnf("hypervisor.qemu.rootless_uids = %d is more than there are from %d on: using %d", h.UIDs, h.FirstUID, last)
		h.UIDs = last
	}
	if !h.Rootless {
		d.warnf("hypervisor.qemu.rootless = false: QEMU runs as root with all of the shim's rights")
	}
}

// resolveVCPUs computes counts that the host can provide: 1 <= VCPUs <=
// MaxVCPUs <= the host's CPUs.
func (d *draft) resolveVCPUs() {
	most := d.mostVCPUs()
	if d.maxVCPUs > most {
		d.warnf("hypervisor.qemu.default_maxvcpus = %d is more than this host can give: using %d", d.maxVCPUs, most)
	}
	d.Hypervisor.MaxVCPUs = most

	vcpus := math.Ceil(d.vcpus)
	if vcpus > float64(most) {
		d.warnf("hypervisor.qemu.default_vcpus = %v is more than default_maxvcpus or the host allow: using %d", d.vcpus, most)
	}
	if d.vcpus < 0 || vcpus > float64(most) {
		vcpus = float64(most)
	}
	d.Hypervisor.VCPUs = uint32(vcpus)
	d.Hypervisor.DefaultVCPUs = min(d.vcpus, vcpus)
	if d.vcpus < 0 {
		d.Hypervisor.DefaultVCPUs = vcpus
	}
}
