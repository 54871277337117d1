package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu"
	"github.com/katabox/katabox/hypervisor/release"
	"github.com/katabox/katabox/hypervisor/vsock"
	"github.com/katabox/katabox/virtcontainers/config"
)

func (h host) checkAccel() result {
	accel, reason := h.accel()
	if accel == hypervisor.AccelKVM {
		return result{Name: "accelerator", Status: ok, Found: "KVM"}
	}
	return result{Name: "accelerator", Status: warning, Found: "TCG, QEMU's translator: " + reason,
		Means: "pods run, but what they compute takes several times as long, and a start takes a second or two",
		Do:    "modprobe kvm_intel (or kvm_amd); on a virtual machine, enable nested virtualization (vmx or svm) on its host"}
}

func (h host) checkVsock(ctx context.Context) result {
	r := result{Name: "vsock", Status: ok}
	kind, err := h.vsockKind(ctx)
	switch {
	case err != nil:
		r.Status, r.Found = missing, oneLine(err.Error())
		r.Means = "a shim cannot reach its guest"
		r.Do = "modprobe vhost_vsock, and run this as root"
	case kind == vsock.KindVhost:
		r.Found = "vhost-vsock, in the host's kernel"
	default:
		r.Found = kind + ", in the shim itself"
		r.Means = "everything works; the kernel's has more throughput"
		r.Do = "modprobe vhost_vsock, to use the kernel's"
	}
	return r
}

// The QEMU versions that matter: the board's option i8042 came with the first,
// the suites run with the second.
var (
	leastQEMU  = release.Release{Major: 7, Minor: 0}
	testedQEMU = release.Release{Major: 7, Minor: 2}
)

func (h host) checkQEMU(ctx context.Context, cfg *config.Config) result {
	r := result{Name: "QEMU", Status: ok, Do: "apt-get install qemu-system-x86, or correct hypervisor.qemu.path"}
	path := cfg.Hypervisor.Path
	words, err := h.programVersion(ctx, path)
	if err != nil {
		r.Status, r.Found, r.Means = missing, oneLine(err.Error()), "no machine can be started"
		return r
	}
	r.Found = path + ", version " + words
	if cfg.Hypervisor.Rootless {
		if err := h.jailable(path); err != nil {
			r.Status, r.Found, r.Means = missing, oneLine(err.Error()), "no machine can be started"
			r.Do = "correct hypervisor.qemu.path, or set hypervisor.qemu.rootless = false"
			return r
		}
	}
	switch v, known := release.Parse(words); {
	case !known:
		r.Status, r.Means = warning, fmt.Sprintf("it is unknown whether it is at least %v", leastQEMU)
	case v.Before(leastQEMU):
		r.Status, r.Means = missing, fmt.Sprintf("at least %v is needed", leastQEMU)
	case v.Before(testedQEMU):
		r.Status, r.Means = warning, fmt.Sprintf("versions older than %v are not tested", testedQEMU)
	case h.takeTurns(v, cfg):
		r.Means = "everything works; the vCPUs of a sandbox take turns on one CPU of the host"
		r.Do = fmt.Sprintf("install QEMU %v or later, with which they run in parallel", qemu.ParallelSince)
	default:
		r.Do = ""
	}
	return r
}

// takeTurns reports whether QEMU's version is why a sandbox's vCPUs do not run in
// parallel.
func (h host) takeTurns(v release.Release, cfg *config.Config) bool {
	accel, _ := h.accel()
	return accel == hypervisor.AccelTCG && cfg.Hypervisor.Threading == config.ThreadingAuto &&
		cfg.Hypervisor.MaxVCPUs > 1 && v.Before(qemu.ParallelSince)
}

func (h host) checkVirtioFSD(ctx context.Context, cfg *config.Config) result {
	r := result{Name: "virtiofsd", Status: ok}
	path := cfg.Hypervisor.VirtioFS.Daemon
	if path == "" {
		return ownServer(cfg)
	}
	words, err := h.programVersion(ctx, path)
	if _, ended := errors.AsType[*exec.ExitError](err); ended && h.uid != 0 {
		// QEMU's virtiofsd drops its groups before it reads its arguments.
		r.Status, r.Found, r.Means = warning, oneLine(err.Error()), "it exists, but only root can run it"
		r.Do = "run kata-runtime check as root"
		return r
	}
	if err != nil {
		r.Status, r.Found, r.Means = missing, oneLine(err.Error()), "containers have no root file system without it"
		r.Do = "apt-get install qemu-system-common (from Debian 13 on: virtiofsd), or correct hypervisor.qemu.virtio_fs_daemon"
		return r
	}
	r.Found = path + ", version " + words
	return r
}

// ownServer is the result for a share that the shim serves, without arguments.
func ownServer(cfg *config.Config) result {
	r := result{Name: "virtiofsd", Status: ok, Found: "none: the shim serves the share itself"}
	const key = "hypervisor.qemu.virtio_fs_extra_args"
	if args := cfg.Hypervisor.VirtioFS.ExtraArgs; len(args) > 0 && cfg.Hypervisor.SharedFS != config.SharedFSNone {
		r.Status, r.Found = missing, fmt.Sprintf("none, and %s (%s) has %q", key, cfg.Origins[key], args)
		r.Means = "no pod starts: the shim serves the share itself, and takes no arguments"
		r.Do = "remove the arguments, or name the daemon that they are for in hypervisor.qemu.virtio_fs_daemon"
	}
	return r
}

func (h host) checkKernel(cfg *config.Config) result {
	r := h.checkFile("guest kernel", cfg.Hypervisor.Kernel, "kernel")
	if v := h.guestKernel(cfg.Hypervisor.Kernel); r.Status == ok && v != "" {
		r.Found += ", Linux " + v
	}
	return r
}

func (h host) checkInitrd(cfg *config.Config) result {
	return h.checkFile("guest initrd", cfg.Hypervisor.Initrd, "initrd")
}

// checkFile checks a regular file that the configuration names.
func (h host) checkFile(name, path, key string) result {
	r := result{Name: name, Status: ok}
	info, err := h.stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		r.Status, r.Found, r.Means = missing, err.Error(), "no guest can boot"
		r.Do = "make install, or correct hypervisor.qemu." + key
		return r
	}
	r.Found = fmt.Sprintf("%s, %d MiB", path, (info.Size()+1<<20-1)>>20)
	return r
}
