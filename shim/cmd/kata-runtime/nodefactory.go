package main

import (
	"os"
	"path/filepath"

	"github.com/katabox/katabox/installer"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/pool"
)

// nodeFactory is "kata-runtime factory" on a node, for the installer. In a container it
// needs the node's PIDs: without them no spare is seen.
var nodeFactory = installer.Factory{Spares: nodeSpares, Destroy: destroyNodeFactory}

func nodePool(on installer.Node) (pool.Pool, error) {
	dir, err := on.Path(runDir)
	return virtcontainers.PoolDir(dir), err
}

// seesPIDs reports whether this process is in the node's PID namespace. The records of
// spares have that namespace's pids: in another one each spare seems to have ended, and
// its files would be removed.
func seesPIDs(on installer.Node) bool {
	dir, err := on.Path("/proc/1/ns")
	if err != nil {
		return false
	}
	its, err := os.Readlink(filepath.Join(dir, "pid"))
	if err != nil {
		return false
	}
	ours, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && ours == its
}

func nodeSpares(on installer.Node) ([]int, error) {
	spares, err := nodePool(on)
	if err != nil || !seesPIDs(on) {
		return nil, err
	}
	all, err := spares.List()
	var pids []int
	for _, s := range all {
		pids = append(pids, s.Process.PID)
	}
	return pids, err
}

// destroyNodeFactory removes the templates of the configuration's directory on the
// node, and ends all spares of the node. Spares that it cannot see count as pods for
// the installer.
func destroyNodeFactory(file string, on installer.Node) error {
	cfg, err := config.Load(file)
	if err != nil {
		return err
	}
	dir, err := on.Path(cfg.Factory.TemplatePath)
	if err != nil {
		return err
	}
	if err := (factory.Store{Dir: dir}).RemoveAll(); err != nil { // and a process that makes a spare
		return err
	}
	spares, err := nodePool(on)
	if err != nil || !seesPIDs(on) {
		return err
	}
	return endSpares(spares, func(pool.Info) bool { return true })
}
