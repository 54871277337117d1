package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// engine is a program that starts pods and must be configured with the handler.
type engine interface {
	// name is also the name of its service.
	name() string
	// serves reports whether it can start pods as it is configured.
	serves() bool
	// plan and unplan return its files with the handler and without it.
	plan(ctx context.Context) (plan, error)
	unplan() (plan, error)
	// validate returns an error if the engine would not accept a plan; it changes
	// nothing.
	validate(ctx context.Context, p plan) (notice string, err error)
}

// planned is a file to be written; nil data removes it.
type planned struct {
	name string
	data []byte
}

// plan has files in the order in which they are changed: the engine may read them
// after each change.
type plan []planned

func (p plan) get(name string) []byte {
	for _, f := range p {
		if f.name == name {
			return f.data
		}
	}
	return nil
}

// engines returns the engines on the node, or the one that the options name. An
// engine that starts no pods is left out if there is another, such as Docker's
// containerd on a node with CRI-O.
func (o *Options) engines() ([]engine, error) {
	n := o.node()
	all := []engine{containerd{n, o.Handler, o.run}, crio{n, o.Handler}}
	var found []engine
	for _, e := range all {
		if o.Engine == e.name() || o.Engine == "auto" && n.present(e.name()) {
			found = append(found, e)
		}
	}
	serving := slices.DeleteFunc(slices.Clone(found), func(e engine) bool { return !e.serves() })
	if len(serving) > 0 && len(serving) < len(found) {
		o.say("containerd is not told of the handler: its CRI plugin is disabled")
		return serving, nil
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("neither containerd nor CRI-O is on the node at %s: install one, or name it with --engine", o.HostRoot)
	}
	return found, nil
}

// differs reports whether a plan would change anything.
func (n node) differs(p plan) (bool, error) {
	for _, f := range p {
		old, err := n.read(f.name)
		if err != nil {
			return false, err
		}
		if (old == nil) != (f.data == nil) || string(old) != string(f.data) {
			return true, nil
		}
	}
	return false, nil
}

// apply carries out an engine's plan, if it would change anything: then the engine is
// noted as one that must be restarted.
func (n node) apply(e engine, p plan) (changed bool, err error) {
	if err := n.sweep(p); err != nil {
		return false, err
	}
	if changed, err = n.differs(p); err != nil || !changed {
		return false, err
	}
	if err := errors.Join(n.makeHome(), n.add(pendingFile, []string{e.name()})); err != nil {
		return false, err
	}
	return true, n.carryOut(p)
}

// carryOut writes the files of a plan.
func (n node) carryOut(p plan) error {
	for _, f := range p {
		if f.data == nil {
			if _, err := n.remove(f.name); err != nil {
				return fmt.Errorf("remove %s: %w", f.name, err)
			}
			continue
		}
		if err := n.makeParents(f.name); err != nil {
			return err
		}
		if _, err := n.write(f.name, f.data); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes temporary files that a killed installer left beside the files of
// a plan.
func (n node) sweep(p plan) error {
	var errs []error
	for _, f := range p {
		_, err := n.remove(f.name + newSuffix)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// programDirs are the directories searched for a node's programs.
var programDirs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// program returns the path of a program on the node, which is given by its name or
// its path, or "" if there is none.
func (n node) program(name string) string {
	dirs := programDirs
	if path.IsAbs(name) {
		dirs = []string{"/"}
	}
	for _, dir := range dirs {
		file, err := n.path(path.Join(dir, name))
		if err != nil {
			continue
		}
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path.Join(dir, name)
		}
	}
	return ""
}

// makeParents makes the parent directories of a file, and records them first:
// uninstall removes them if they are empty.
func (n node) makeParents(name string) error {
	var missing []string
	for dir := filepath.Dir(name); !n.exists(dir); dir = filepath.Dir(dir) {
		missing = append([]string{dir}, missing...)
	}
	if err := n.remember(missing); err != nil {
		return err
	}
	for _, dir := range missing {
		if err := n.mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	return nil
}
