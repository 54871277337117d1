package qemu

import (
	"context"
	"strings"

	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// failing are the disks of which an I/O error is in the log. A disk that fails once
// fails often, and a guest can have it fail at will.
type failing map[string]bool

// note logs the first error of each disk (qapi/block-core.json, BLOCK_IO_ERROR): the guest
// gets EIO, whatever the host's error was. There are no more disks than the pod has had.
func (f failing) note(ctx context.Context, sandbox string, ev qmp.Event) {
	if ev.Event != "BLOCK_IO_ERROR" {
		return
	}
	node, _ := ev.Data["node-name"].(string)
	if f[node] {
		return
	}
	f[node] = true
	operation, _ := ev.Data["operation"].(string)
	reason, _ := ev.Data["reason"].(string)
	log.G(ctx).WithFields(log.Fields{
		"sandbox": sandbox, "disk": strings.TrimPrefix(node, nodePrefix), "operation": operation, "reason": child.Printable(reason),
	}).Warn("a disk of the host failed, and the guest gets an I/O error; further errors of this disk are not logged")
}
