package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
)

// probePause is the time between two probes.
const probePause = 10 * time.Second

// shown are the pods of the picture, as Kubernetes would name them.
var shown = []struct{ namespace, name, script string }{
	{"shop", "web", "while :; do ping -c 20 -s 1400 -i 0.2 10.0.0.1 >/dev/null; sleep 20; done"},
	{"shop", "database", "n=0; while sleep 15; do n=$(((n+1)%12)); dd if=/dev/zero of=/dev/shm/fill bs=1M count=$((n*4)) 2>/dev/null; done"},
	{"batch", "report", "while :; do i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 40; done"},
}

// stage is the pods and their networks.
type stage struct {
	pods []*harness.Pod
	nets []harness.Netns
}

// startPods starts the pods side by side; the caller removes them, also after an
// error.
func startPods(ctx context.Context, d *harness.Daemon) (*stage, error) {
	s := new(stage)
	nets := make([]harness.Netns, len(shown))
	for i := range shown {
		var err error
		if nets[i], err = s.network(d); err != nil {
			return s, err
		}
	}
	pods, errs := make([]*harness.Pod, len(shown)), make([]error, len(shown))
	var all sync.WaitGroup
	for i := range shown {
		all.Go(func() { pods[i], errs[i] = startPod(ctx, d, i, nets[i]) })
	}
	all.Wait()
	for _, p := range pods {
		if p != nil {
			s.pods = append(s.pods, p)
		}
	}
	return s, errors.Join(errs...)
}

// startPod starts one of the pods; after an error it may have been made.
func startPod(ctx context.Context, d *harness.Daemon, i int, ns harness.Netns) (*harness.Pod, error) {
	p := shown[i]
	names := map[string]string{
		"io.kubernetes.cri.sandbox-name": p.name, "io.kubernetes.cri.sandbox-namespace": p.namespace,
		"io.kubernetes.cri.sandbox-uid": "uid-of-" + p.name,
	}
	pod, err := d.NewPod(ctx, p.name, oci.WithAnnotations(names), harness.InNetns(ns))
	if err != nil {
		return nil, fmt.Errorf("start pod %s: %w", p.name, err)
	}
	c, err := pod.Add(ctx, harness.ContainerConfig{Name: p.name, Args: []string{"sh", "-c", p.script}})
	if err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		err = fmt.Errorf("start container of pod %s: %w", p.name, err)
	}
	return pod, err
}

// network makes a namespace whose link leads to an address in another one.
func (s *stage) network(d *harness.Daemon) (harness.Netns, error) {
	var both []harness.Netns
	for range 2 {
		ns, err := d.NewNetns()
		if err != nil {
			return "", err
		}
		s.nets = append(s.nets, ns)
		both = append(both, ns)
	}
	for _, args := range [][]string{
		{"ip", "link", "add", "eth0", "type", "veth", "peer", "name", "far", "netns", string(both[1])},
		{"ip", "address", "add", "10.0.0.2/24", "dev", "eth0"}, {"ip", "link", "set", "eth0", "up"},
	} {
		if _, err := both[0].Run(args...); err != nil {
			return "", err
		}
	}
	for _, args := range [][]string{{"ip", "address", "add", "10.0.0.1/24", "dev", "far"}, {"ip", "link", "set", "far", "up"}} {
		if _, err := both[1].Run(args...); err != nil {
			return "", err
		}
	}
	return both[0], nil
}

// names are the directories of the pods' records.
func (s *stage) names(d *harness.Daemon) []string {
	var names []string
	for _, p := range s.pods {
		names = append(names, d.HostName(p.Sandbox.Box.ID()))
	}
	return names
}

// probe runs a command in one of the pods now and then, as a probe of the kubelet
// does, for that long.
func (s *stage) probe(ctx context.Context, lasting time.Duration) error {
	end := time.After(lasting)
	for {
		if _, _, err := s.pods[0].Services[0].ExecRun(ctx, harness.ExecConfig{Args: []string{"true"}}); err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return nil
		case <-time.After(probePause):
		}
	}
}

func (s *stage) remove(ctx context.Context) error {
	var errs []error
	for _, p := range s.pods {
		errs = append(errs, p.Remove(ctx))
	}
	for _, ns := range s.nets {
		errs = append(errs, ns.Remove())
	}
	return errors.Join(errs...)
}
