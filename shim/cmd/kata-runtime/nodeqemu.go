package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu"
	"github.com/katabox/katabox/hypervisor/vsock"
	"github.com/katabox/katabox/installer"
	"github.com/katabox/katabox/virtcontainers/config"
)

// nodeQEMU is what "kata-runtime check" requires of a configuration and of QEMU, for
// the installer.
var nodeQEMU = installer.Hypervisor{Machine: nodeMachine, Check: checkNodeQEMU}

func nodeMachine(file string) (installer.Machine, error) {
	cfg, err := config.Load(file)
	if err != nil {
		return installer.Machine{}, err
	}
	m := installer.Machine{Program: cfg.Hypervisor.Path, Firmware: cfg.Hypervisor.Firmware}
	if _, named := cfg.Origins[config.KernelKey]; named {
		m.Kernel = cfg.Hypervisor.Kernel
	}
	if _, named := cfg.Origins[config.InitrdKey]; named {
		m.Initrd = cfg.Hypervisor.Initrd
	}
	return m, nil
}

// checkNodeQEMU does the checks of QEMU on a node, and of its kernel, which is this
// program's, too.
func checkNodeQEMU(ctx context.Context, file string, on installer.Node) error {
	cfg, err := config.Load(file)
	if err != nil {
		return err
	}
	h := onNode(on)
	found := h.checkQEMU(ctx, cfg)
	results := []result{h.checkHostKernel(), found}
	if found.Status != missing {
		results = append(results, h.checkOptions(ctx, cfg)...)
	}
	var errs []error
	for _, r := range results {
		if r.Status == missing {
			errs = append(errs, fmt.Errorf("%s: %s: %s", r.Found, r.Means, r.Do))
		}
	}
	return errors.Join(errs...)
}

// onNode is a host whose QEMU is a node's, with the node's devices.
func onNode(on installer.Node) host {
	h := thisHost()
	h.output = func(ctx context.Context, path string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, programTimeout)
		defer cancel()
		out, err := on.Run(ctx, path, args...)
		return string(out), err
	}
	h.jailable = func(path string) error {
		path, err := on.Path(path)
		if err != nil {
			return err
		}
		return qemu.CheckProgram(path)
	}
	h.accel = func() (hypervisor.Accel, string) {
		device, err := on.Path("/dev/kvm")
		if err != nil {
			return hypervisor.AccelTCG, err.Error()
		}
		return qemu.DetectAccel(qemu.Host{KVM: device})
	}
	h.vsockKind = func(ctx context.Context) (string, error) {
		device, err := on.Path("/dev/vhost-vsock")
		if err != nil {
			return "", err
		}
		return vsockKind(ctx, vsock.Options{VhostPath: device})
	}
	return h
}
