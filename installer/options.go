package installer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
)

// Options say what to do, on which node.
type Options struct {
	// HostRoot is where this process finds the node's root directory.
	HostRoot string
	// From has the build to install: the directory with bin and share.
	From string
	// Version is the version of that build.
	Version string
	// Engine is "containerd", "crio", or "auto" for those that the node has.
	Engine string
	// Handler is the runtime handler's name, which a RuntimeClass names.
	Handler string
	// Restart is "auto" to restart an engine whose files have changed, or "never".
	Restart string
	// Force makes Uninstall continue although pods run.
	Force bool
	// Hypervisor is for Install.
	Hypervisor Hypervisor
	// Factory is for Uninstall; its functions may be nil.
	Factory Factory
	// NodeName is the name of the node in Kubernetes, for its label; unused
	// outside a pod.
	NodeName string
	// Say, if set, is called with a line, without a newline, after each step.
	Say func(line string)

	// run and cut are replaced by tests.
	run runner
	cut func(change string) error
	// cluster is nil outside a pod.
	cluster *cluster
}

// Result is what was done.
type Result struct {
	// Version is the directory's name below /opt/kata/versions.
	Version string `json:"version,omitempty"`
	// Engines are those that have the handler now, or had it.
	Engines []string `json:"engines"`
	// Restarted are the services that were restarted.
	Restarted []string `json:"restarted"`
	// Labelled reports whether the node's label in Kubernetes was set or removed.
	Labelled bool `json:"labelled"`
}

// handlerPattern matches the names that Kubernetes allows for a RuntimeClass's
// handler.
var handlerPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (o *Options) check() error {
	root, err := filepath.Abs(o.HostRoot)
	if err != nil {
		return err
	}
	if info, err := os.Stat(filepath.Join(root, "etc")); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is not the root of a node: it has no directory etc", root)
	}
	o.HostRoot = root
	if o.Engine != "auto" && o.Engine != "containerd" && o.Engine != "crio" {
		return fmt.Errorf("engine %q: want auto, containerd or crio", o.Engine)
	}
	if o.Restart != "auto" && o.Restart != "never" {
		return fmt.Errorf("restart %q: want auto or never", o.Restart)
	}
	if !handlerPattern.MatchString(o.Handler) {
		return fmt.Errorf("handler %q: want lowercase letters, digits and '-', at most 63 characters", o.Handler)
	}
	if o.run == nil {
		o.run = o.node().run
	}
	if o.cluster == nil {
		if o.cluster, err = inCluster(); err != nil {
			return err
		}
	}
	if o.cluster != nil && o.NodeName == "" {
		return errors.New("the node's name in Kubernetes is not known: give it with --node, or in NODE_NAME")
	}
	return nil
}

func (o *Options) node() node { return node{root: o.HostRoot, cut: o.cut} }

func (o *Options) say(format string, args ...any) {
	if o.Say != nil {
		o.Say(fmt.Sprintf(format, args...))
	}
}

// lock excludes other installers from the node until the returned function is
// called.
func (n node) lock() (unlock func(), err error) {
	dir, err := n.path("/etc")
	if err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another kata-runtime is changing this node: wait until it has ended: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
