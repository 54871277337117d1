package oci

import (
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// count moves a container's monitor to where its pod is counted on the host:
// Docker and Podman take their statistics from the cgroups of the pid that they
// were given, which would otherwise be those of the process that called create.
// If the pod has no cgroups, or they could not be made, which its shim has
// logged, the monitor stays where it is.
func (r *Runtime) count(rec *record, pid int) {
	sandbox := rec.SandboxID
	if sandbox == "" {
		sandbox = rec.ID
	}
	pod, err := persist.Load(r.Pods, r.program(sandbox).Owner().Name(sandbox))
	if err != nil || !pod.VM.Alive() {
		return // it has ended, which the engine sees by the monitor
	}
	_ = hostcgroup.Join(pid, pod.VM.PID, pod.Cgroups)
}
