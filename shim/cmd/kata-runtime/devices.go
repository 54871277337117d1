package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu"
	"github.com/katabox/katabox/hypervisor/vsock"
	"github.com/katabox/katabox/virtcontainers/config"
)

// model is a device that QEMU must have, and the key that requests it; empty if
// every machine has it.
type model struct{ name, key string }

// models returns the devices of every machine of a configuration. The kind of vsock
// is what the host provides; empty if it is unknown.
func models(cfg *config.Config, vsockKind string) []model {
	h := cfg.Hypervisor
	all := []model{{qemu.ModelConsole, ""}, {qemu.ModelBridge, ""}, {qemu.ModelRNG, ""}}
	add := func(used bool, key string, names ...string) {
		for _, name := range names {
			if used {
				all = append(all, model{name, key})
			}
		}
	}
	add(vsockKind == vsock.KindVhost, "", qemu.ModelVsock)
	add(vsockKind == vsock.KindVhostUser, "", qemu.ModelVhostUserSock)
	add(!cfg.Runtime.DisableNewNetNS, "", qemu.ModelNIC)
	add(h.SharedFS == config.SharedFSVirtioFS, "shared_fs", qemu.ModelShare)
	add(h.BlockDriver == config.BlockSCSI, "block_device_driver", qemu.ModelSCSI, qemu.ModelSCSIDisk)
	add(h.BlockDriver == config.BlockVirtio, "block_device_driver", qemu.ModelBlock)
	add(h.VirtioMem && !cfg.Runtime.StaticSizing, "enable_virtio_mem", qemu.ModelMemory)
	add(!h.VirtioMem && !cfg.Runtime.StaticSizing, "enable_virtio_mem", qemu.ModelMemoryModule)
	add(h.Memory.Reclaim, "reclaim_guest_freed_memory", qemu.ModelBalloon)
	add(h.DumpDir != "", "guest_memory_dump_path", qemu.ModelPanic)
	return all
}

// modelPattern matches a line of "-device help" (softmmu/qdev-monitor.c,
// qdev_print_devinfo).
var modelPattern = regexp.MustCompile(`(?m)^name "([^"]+)"`)

// checkDevices searches the devices of the configuration in QEMU's list: a
// distribution may have built it without some. It returns nothing if QEMU does not
// print one; checkQEMU has the reason.
func (h host) checkDevices(ctx context.Context, cfg *config.Config) []result {
	list, err := h.output(ctx, cfg.Hypervisor.Path, "-device", "help")
	found := modelPattern.FindAllStringSubmatch(list, -1)
	if err != nil || len(found) == 0 {
		return nil
	}
	has := map[string]bool{}
	for _, match := range found {
		has[match[1]] = true
	}
	kind, _ := h.vsockKind(ctx) // checkVsock has the error
	all := models(cfg, kind)
	lacking := slices.DeleteFunc(slices.Clone(all), func(m model) bool { return has[m.name] })
	r := result{Name: "devices", Status: ok, Found: fmt.Sprintf("QEMU has all %d", len(all))}
	if len(lacking) > 0 {
		r.Status, r.Means = missing, "no pod of this configuration starts, or none that gets a disk or more memory if that is what is missing"
		r.Found, r.Do = cfg.Hypervisor.Path+" has no "+lacking[0].name, "install a QEMU that has it"
		var keys []string
		for _, m := range lacking {
			if m != lacking[0] {
				r.Found += ", " + m.name
			}
			if key := "hypervisor.qemu." + m.key; m.key != "" && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		if len(keys) > 0 {
			r.Do += ", or change " + strings.Join(keys, ", ")
		}
	}
	return []result{r}
}

// accelNames are the accelerators' names in "-accel help".
var accelNames = map[hypervisor.Accel]string{hypervisor.AccelKVM: "kvm", hypervisor.AccelTCG: "tcg"}

// checkAccelOfQEMU searches the host's accelerator in QEMU's list, which follows a
// headline. It returns nothing if that is well, or if QEMU does not print one.
func (h host) checkAccelOfQEMU(ctx context.Context, cfg *config.Config) []result {
	list, err := h.output(ctx, cfg.Hypervisor.Path, "-accel", "help")
	words := strings.Fields(list)
	accel, _ := h.accel()
	name := accelNames[accel]
	if err != nil || !strings.Contains(list, "\n") || slices.Contains(words, name) {
		return nil
	}
	r := result{Name: "QEMU -accel", Status: missing, Found: cfg.Hypervisor.Path + " has no " + name, Means: "no machine can be started"}
	r.Do = "install a QEMU that has it"
	if accel == hypervisor.AccelTCG {
		r.Do += ", or make KVM available: see the accelerator"
	}
	return []result{r}
}
