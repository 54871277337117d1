package virtcontainers

import (
	"context"

	"github.com/containerd/log"
)

// pidNamespaceOf is the container of the pod that the host knows by the process
// pid, whose PID namespace c joins; empty is the pod's first. So it is for a
// process that is none of the pod's containers': a spec's path is the only word
// that engines have for "the pod's", and some name it by processes of theirs.
func (c *Container) pidNamespaceOf(ctx context.Context, pid int) string {
	s := c.sandbox
	if pid == 0 || pid == s.standIns.ownPID() {
		return ""
	}
	for _, other := range s.Containers() {
		if other == c || other.PID() != pid {
			continue
		}
		if other.ID == s.ID {
			return ""
		}
		return other.ID
	}
	log.G(ctx).WithField("container", c.ID).Warnf("the container is to join the PID namespace of process %d, which is not a container of its pod: it joins the pod's", pid)
	return ""
}
