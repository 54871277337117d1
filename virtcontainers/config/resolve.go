package config

import "math"

const (
	maxUint32 = math.MaxUint32
	// mostVCPUs is Kata's limit for amd64. (A q35 of more than 255 needs an
	// interrupt remapper: QEMU's hw/i386/x86-common.c.)
	mostVCPUs = 240
)

// resolve turns the vCPU counts as written into ones that a host with cpus
// CPUs can give: 1 <= VCPUs <= MaxVCPUs <= cpus.
func (d *draft) resolve(cpus int) {
	most := uint32(min(max(cpus, 1), mostVCPUs))
	if d.maxVCPUs > most {
		d.warnf("hypervisor.qemu.default_maxvcpus = %d is more than this host can give: using %d", d.maxVCPUs, most)
	}
	if d.maxVCPUs > 0 {
		most = min(most, d.maxVCPUs)
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
}
