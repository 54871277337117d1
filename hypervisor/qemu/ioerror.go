package qemu

import (
	"context"
	"strings"

	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// maxFailing bounds the disks whose errors are logged, whatever QEMU calls them.
const maxFailing = 256

// failing are the disks of which an I/O error is in the log. A disk that fails once
// fails often, and a guest can have it fail at will.
type failing map[string]bool

// note logs the first error of each disk (qapi/block-core.json, BLOCK_IO_ERROR): the guest
// gets EIO, whatever the host's error was.
func (f failing) note(ctx context.Context, sandbox string, ev qmp.Event) {
	node := textOf(ev, "node-name")
	if ev.Event != "BLOCK_IO_ERROR" || f[node] || len(f) >= maxFailing {
		return
	}
	f[node] = true
	log.G(ctx).WithFields(log.Fields{
		"sandbox": sandbox, "disk": strings.TrimPrefix(node, nodePrefix), "operation": textOf(ev, "operation"), "reason": textOf(ev, "reason"),
	}).Warn("a disk of the host failed, and the guest gets an I/O error; further errors of this disk are not logged")
}
