package node

import (
	"context"
	"fmt"
	"slices"
)

// StartService runs a program of Options.Tools that is no part of Kubernetes as
// one more service, with an administrator's kubeconfig, and waits until url
// answers. StopService ends it; otherwise Stop does.
func (n *Node) StartService(ctx context.Context, name, url string, args ...string) error {
	return n.start(ctx, n.newService(name, answers(url), append([]string{"--kubeconfig=" + kubeconfigPath}, args...)...))
}

// StopService ends a service for good.
func (n *Node) StopService(ctx context.Context, name string) error {
	i := slices.IndexFunc(n.services, func(s *service) bool { return s.name == name })
	if i < 0 {
		return fmt.Errorf("stop %s: no such service", name)
	}
	s := n.services[i]
	n.services = slices.Delete(n.services, i, i+1)
	return s.stop(ctx)
}
