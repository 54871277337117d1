package oci

import (
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// count puts a container's monitor where its pod is counted on the host: Docker
// and Podman take their statistics from the cgroups of the pid that they were
// told, which would be those of whoever called create. Where the pod has no
// cgroups, or they could not be made, of which its shim has warned, the monitor
// stays where it is.
func (r *Runtime) count(rec *record, pid int) {
	sandbox := rec.SandboxID
	if sandbox == "" {
		sandbox = rec.ID
	}
	pod, err := persist.Load(r.Pods, r.program(sandbox).Owner().Name(sandbox))
	if err != nil || !pod.VM.Alive() {
		return // it has ended, of which the engine hears by the monitor
	}
	_ = hostcgroup.Join(pid, pod.VM.PID, pod.Cgroups)
}
