package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"

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

// nodeStore returns the directory of templates of a configuration on the node.
func nodeStore(file string, on installer.Node) (factory.Store, error) {
	cfg, err := config.Load(file)
	if err != nil {
		return factory.Store{}, err
	}
	dir, err := on.Path(cfg.Factory.TemplatePath)
	return factory.Store{Dir: dir}, err
}

// nodeSpares returns the processes of the node's spares and the one that makes a template.
// It is an error if there is one that this process cannot see.
func nodeSpares(file string, on installer.Node) ([]int, error) {
	store, err := nodeStore(file, on)
	hasStore := err == nil // spares need no valid configuration
	if !seesPIDs(on) {
		if hasStore {
			return nil, refuseMaker(store)
		}
		return nil, nil
	}
	spares, err := nodePool(on)
	if err != nil {
		return nil, err
	}
	all, err := spares.List()
	var pids []int
	for _, s := range all {
		pids = append(pids, s.Process.PID)
	}
	if hasStore {
		if maker, runs := store.Maker(); runs {
			pids = append(pids, maker.PID)
		}
	}
	return pids, err
}

// refuseMaker returns an error if a process makes a template, which this process cannot
// end because it does not have the node's PIDs.
func refuseMaker(store factory.Store) error {
	if _, err := os.Stat(store.Dir); err != nil {
		return nil //nolint:nilerr // none is made where the directory is not there
	}
	l, err := store.Lock()
	if errdefs.IsUnavailable(err) {
		return fmt.Errorf("a template is being made in %s: wait for its end, or give the container the node's PIDs (hostPID): %w", store.Dir, err)
	}
	if err != nil {
		return nil //nolint:nilerr // templates are refused there
	}
	return l.Close()
}

// destroyNodeFactory removes the templates of the configuration's directory on the
// node, and ends all spares of the node. Spares that it cannot see count as pods for
// the installer.
func destroyNodeFactory(file string, on installer.Node) (notice string, err error) {
	notice, err = removeNodeTemplates(file, on)
	if !seesPIDs(on) {
		return notice, err
	}
	spares, poolErr := nodePool(on)
	if poolErr == nil {
		poolErr = endSpares(spares, func(pool.Info) bool { return true })
	}
	return notice, errors.Join(err, poolErr)
}

// removeNodeTemplates removes the templates of the configuration's directory on the node,
// and ends the process that makes one, or a spare. The notice is about a configuration
// with which no template can be made.
func removeNodeTemplates(file string, on installer.Node) (notice string, err error) {
	store, err := nodeStore(file, on)
	if err != nil {
		return "templates are left, if there are any: the node's configuration does not say where: " + err.Error(), nil //nolint:nilerr // the notice has it
	}
	if !seesPIDs(on) {
		if err := refuseMaker(store); err != nil {
			return "", err
		}
	}
	err = store.RemoveAll()
	if errdefs.IsFailedPrecondition(err) { // the directory is not one for templates
		return "templates are left, if there are any: " + err.Error(), nil
	}
	return "", err
}
