package config

import (
	"errors"
	"fmt"
)

// maxCommandLine is how many bytes a guest's kernel takes on x86, without the NUL
// at the end (arch/x86/include/asm/setup.h, COMMAND_LINE_SIZE). The machine's own
// parameters are added to kernel_params.
const maxCommandLine = 2047

// checkTogether finds values that are allowed alone and not together. Each is
// something with which no pod starts unless its annotations change it.
func (d *draft) checkTogether() error {
	return errors.Join(d.checkNamespace(), d.checkRate(), d.checkSectors(), d.checkMemory(), d.checkShare(), d.checkKernelParams(), d.Runtime.Tracing.check())
}

func (d *draft) checkNamespace() error {
	if r := d.Runtime; r.DisableNewNetNS && r.NetworkModel != NetworkNone {
		return fmt.Errorf(`runtime.disable_new_netns = true with runtime.internetworking_model = %q: want "none" with it`, r.NetworkModel)
	}
	return nil
}

// checkRate refuses a limit for what no interface is known to send.
func (d *draft) checkRate() error {
	const name = "hypervisor.qemu.tx_rate_limiter_max_rate"
	if rate := d.Hypervisor.TxMaxRate; rate != 0 && d.Runtime.NetworkModel == NetworkNone {
		return fmt.Errorf(`%s: %s = %d with runtime.internetworking_model = "none": want 0 with it, or another model: `+
			"it is unknown by which interface packets leave", d.Origins[name], name, rate)
	}
	return nil
}

func (d *draft) checkSectors() error {
	if h := d.Hypervisor; h.BlockPhysicalSector != 0 && h.BlockLogicalSector > h.BlockPhysicalSector {
		return fmt.Errorf("hypervisor.qemu.block_device_logical_sector_size = %d with block_device_physical_sector_size = %d: "+
			"want it at most as large", h.BlockLogicalSector, h.BlockPhysicalSector)
	}
	return nil
}

// checkMemory keeps huge pages from being given back. Another process may take such
// a page, and when the guest wants it again, QEMU dies of SIGBUS.
func (d *draft) checkMemory() error {
	if m := d.Hypervisor.Memory; m.HugePages && m.Reclaim {
		return errors.New("hypervisor.qemu.enable_hugepages = true with reclaim_guest_freed_memory = true: " +
			"want one of them: huge pages are the guest's as long as it has them")
	}
	return nil
}

// checkShare refuses mounts that only a share could have.
func (d *draft) checkShare() error {
	const name = "runtime.sandbox_bind_mounts"
	if binds := d.Runtime.SandboxBindMounts; d.Hypervisor.SharedFS == SharedFSNone && len(binds) > 0 {
		return fmt.Errorf(`%s: %s = %s with hypervisor.qemu.shared_fs = "none": want "virtio-fs" with it, or no mounts`,
			d.Origins[name], name, show(plain(binds)))
	}
	return nil
}

func (d *draft) checkKernelParams() error {
	const name = "hypervisor.qemu.kernel_params"
	if length := len(d.Hypervisor.KernelParams); length > maxCommandLine {
		return fmt.Errorf("%s: %s has %d bytes: want at most %d with the parameters that every guest has", d.Origins[name], name, length, maxCommandLine)
	}
	return nil
}
