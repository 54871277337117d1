package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// Name is the node's name in Kubernetes.
const Name = "node"

// Dir holds what the cluster needs besides its usual paths. It is on the private
// host's tmpfs.
const Dir = "/run/katabox-k8s"

// startTimeout bounds the start of one service on a busy machine.
const startTimeout = 3 * time.Minute

// Options select what a Node runs.
type Options struct {
	Layout harness.Layout
	// Tools is the directory with Kubernetes' programs and etcd.
	Tools string
	// Runc is the path of runc.
	Runc string
	// Registry is the URL of the registry that has all images.
	Registry string
	// Cgroup is the cgroup of all pods, "/name".
	Cgroup string
}

// Node is a running cluster of one node. Its methods may be called from several
// goroutines, except Stop, StartService and StopService.
type Node struct {
	options  Options
	services []*service
}

// The services, by their programs' names.
const (
	Etcd       = "etcd"
	APIServer  = "kube-apiserver"
	Controller = "kube-controller-manager"
	Scheduler  = "kube-scheduler"
	Containerd = "containerd"
	Kubelet    = "kubelet"
)

// Start starts a cluster and waits until its node is ready. The caller must Stop
// it.
func Start(ctx context.Context, o Options) (*Node, error) {
	n := &Node{options: o}
	for _, prepare := range []func() error{n.prepareMachine, n.writeKeys, n.writeContainerdConfig, n.writeKubeletConfig} {
		if err := prepare(); err != nil {
			return nil, fmt.Errorf("prepare the node: %w", err)
		}
	}
	for _, s := range []*service{n.etcd(), n.apiServer(), n.controller(), n.scheduler(), n.containerd(), n.kubelet()} {
		if err := n.start(ctx, s); err != nil {
			return nil, errors.Join(err, n.Stop(context.WithoutCancel(ctx)))
		}
	}
	if err := n.ready(ctx); err != nil {
		return nil, errors.Join(err, n.Stop(context.WithoutCancel(ctx)))
	}
	go n.serveSystemctl()
	return n, nil
}

// start starts a service and waits until it answers.
func (n *Node) start(ctx context.Context, s *service) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.start(); err != nil {
		return err
	}
	n.services = append(n.services, s)
	if err := s.Ready(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, s.logTail())
	}
	return nil
}

// ready waits until pods can be made: the node is ready, and so are the service
// account and the certificates that each pod gets.
func (n *Node) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, what := range [][]string{
		{"wait", "--for=create", "node/" + Name, "--timeout=180s"},
		{"wait", "--for=condition=Ready", "node/" + Name, "--timeout=180s"},
		{"wait", "--for=create", "serviceaccount/default", "--timeout=180s"},
		{"wait", "--for=create", "configmap/kube-root-ca.crt", "--timeout=180s"},
	} {
		if r := n.Kubectl(ctx, "", what...); r.Code != 0 {
			return fmt.Errorf("wait for the node: %s%s", r.Errors, n.service(Kubelet).logTail())
		}
	}
	return nil
}

// Stop ends all services, the last one first.
func (n *Node) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var errs []error
	for _, s := range slices.Backward(n.services) {
		errs = append(errs, s.stop(ctx))
	}
	return errors.Join(errs...)
}

// Kill kills a service without a chance to clean up, and waits until it has been
// started again and answers.
func (n *Node) Kill(ctx context.Context, name string) error {
	return n.again(ctx, name, unix.SIGKILL)
}

// Restart stops a service as systemd does, and waits until it has been started
// again and answers.
func (n *Node) Restart(ctx context.Context, name string) error {
	return n.again(ctx, name, unix.SIGTERM)
}

func (n *Node) again(ctx context.Context, name string, signal unix.Signal) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s := n.service(name)
	if err := s.again(ctx, signal); err != nil {
		return err
	}
	return s.Ready(ctx)
}

// Down kills services, in their order, which do not run again before Up.
func (n *Node) Down(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := n.service(name).hold(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Up starts services that are down, in their order, and waits until each answers.
func (n *Node) Up(ctx context.Context, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, name := range names {
		s := n.service(name)
		if err := s.release(); err != nil {
			return err
		}
		if err := s.Ready(ctx); err != nil {
			return fmt.Errorf("%w\n%s", err, s.logTail())
		}
	}
	return nil
}

// Boot starts containerd and the kubelet on a host that has none of the pods'
// cgroups, as a host that has just booted.
func (n *Node) Boot(ctx context.Context) error {
	if err := n.makeCgroups(); err != nil {
		return err
	}
	return n.Up(ctx, Containerd, Kubelet)
}

// PIDs returns the process ids of the services that run.
func (n *Node) PIDs() []int {
	var pids []int
	for _, s := range n.services {
		child, _ := s.current()
		pids = append(pids, child.PID())
	}
	return pids
}

// Starts returns how often a service has been started.
func (n *Node) Starts(name string) int {
	_, starts := n.service(name).current()
	return starts
}

func (n *Node) service(name string) *service {
	i := slices.IndexFunc(n.services, func(s *service) bool { return s.name == name })
	return n.services[i]
}

// LogPath is the file with the log of a service.
func (n *Node) LogPath(name string) string {
	return filepath.Join(n.options.Layout.Logs(), "k8s-"+name+".log")
}

// tool is the path of one of Kubernetes' programs.
func (n *Node) tool(name string) string { return filepath.Join(n.options.Tools, name) }

// writeFiles writes files that only root can read, with their directories.
func writeFiles(files map[string]string) error {
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
