package qemu

import (
	"context"
	"os/exec"
	"strings"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/hypervisor/release"
)

// ParallelSince is the first QEMU whose TCG runs a guest's CPUs in parallel by
// default here.
//
// Those before it lock a page of code only after its translation (accel/tcg,
// tb_link_page). What another CPU writes to the page meanwhile is lost: the CPU
// keeps executing the old code. Linux patches its own code whenever a feature
// is used first (static keys, Documentation/staging/static-keys.rst), with an int3
// in between. A CPU that keeps such an int3 hangs, and the guest with it.
//
// Since QEMU's commit deba78709ae8, "accel/tcg: Always lock pages before
// translation", the page is locked first, and hangs are some seventy times rarer: a
// write still comes a moment after the translations that it invalidates.
var ParallelSince = release.Release{Major: 8, Minor: 1}

const (
	// versionTimeout bounds "--version", which takes 20 ms.
	versionTimeout = 5 * time.Second
	// versionBytes is more than the line with the version has.
	versionBytes = 4 << 10
)

// threading decides about the spec's Threading. The version is asked only for a
// guest that can have several CPUs, and with an unknown one the CPUs take turns: a
// slow guest is better than one that hangs.
func threading(ctx context.Context, spec hypervisor.Spec) hypervisor.Threading {
	auto := spec.Threading == "" || spec.Threading == hypervisor.ThreadingAuto
	if !auto || spec.Accel != hypervisor.AccelTCG || max(spec.VCPUs, spec.MaxVCPUs) == 1 {
		return spec.Threading
	}
	words := Version(ctx, spec.Path)
	if v, known := release.Parse(words); known && !v.Before(ParallelSince) {
		return hypervisor.ThreadingMulti
	}
	log.G(ctx).WithField("sandbox", spec.ID).
		Infof("QEMU %q is not known to be %v or later: the guest's CPUs take turns on one CPU of the host; see hypervisor.qemu.tcg_thread", words, ParallelSince)
	return hypervisor.ThreadingSingle
}

// Version returns the version that a QEMU prints, with what follows it: "7.2.22
// (Debian ...)". It is empty if the program does not run or prints something else.
func Version(ctx context.Context, path string) string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out := child.NewTail(versionBytes)
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Stdout, cmd.WaitDelay = out, time.Second
	if cmd.Run() != nil {
		return ""
	}
	line, _, _ := strings.Cut(out.String(), "\n")
	_, words, _ := strings.Cut(line, "version ")
	return strings.TrimSpace(words)
}
