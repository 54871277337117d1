package virtcontainers

import (
	"context"

	"github.com/containerd/log"
)

// pidNamespaceOf returns the id of the container whose PID namespace c joins:
// the one whose stand-in is pid; empty stands for the pod's first. It is also
// empty if pid belongs to no container of the pod: a path in the spec is the
// only way in which engines can express "the pod's namespace", and some use one
// of their own processes in it.
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
