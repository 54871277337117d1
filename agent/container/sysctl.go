package container

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// procSys is where the kernel shows its sysctls.
const procSys = "/proc/sys"

// sysctlModules are the modules that have the sysctls of these names. The kernel does not
// load them for a sysctl; on a node they are there for others, such as kube-proxy.
var sysctlModules = []struct{ prefix, module string }{
	{"net/netfilter/nf_conntrack_", "nf_conntrack"},
	{"net/netfilter/nf_flowtable_", "nf_conntrack"},
	{"net/nf_conntrack_max", "nf_conntrack"},
	{"net/bridge/bridge-nf-", "br_netfilter"},
	{"net/ipv4/vs/", "ip_vs"},
}

// sysctls writes sysctls.
type sysctls struct {
	dir string // where the kernel shows them
	// load loads a module for a sysctl that is not there; nil loads none.
	load func(module string) error
}

// set writes sysctls whose names begin with one of kinds, in the order of their names.
// If one fails, those before it are set back.
func (s sysctls) set(values map[string]string, kinds ...string) (undo func() error, err error) {
	var undos []func() error
	undo = func() error {
		var errs []error
		for _, f := range slices.Backward(undos) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		back, err := s.setOne(key, values[key], kinds)
		if err != nil {
			return nil, errors.Join(err, undo())
		}
		undos = append(undos, back)
	}
	return undo, nil
}

func (s sysctls) setOne(key, value string, kinds []string) (undo func() error, err error) {
	name, err := sysctlFile(key, kinds...)
	if err != nil {
		return nil, err
	}
	before, err := s.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("set sysctl %s to %q: %w", key, value, err)
	}
	// Some can only be written, such as net.ipv4.route.flush.
	readable := err == nil
	file := path.Join(s.dir, name)
	if err := os.WriteFile(file, []byte(value), 0); err != nil {
		return nil, fmt.Errorf("set sysctl %s to %q: %w", key, value, err)
	}
	return func() error {
		if !readable {
			return nil
		}
		if err := os.WriteFile(file, before, 0); err != nil {
			return fmt.Errorf("set sysctl %s back: %w", key, err)
		}
		return nil
	}, nil
}

// read returns a sysctl's value, and loads the module that has it, if it is not there.
func (s sysctls) read(name string) ([]byte, error) {
	file := path.Join(s.dir, name)
	value, err := os.ReadFile(file)
	if s.load == nil || !errors.Is(err, fs.ErrNotExist) {
		return value, err
	}
	for _, known := range sysctlModules {
		if !strings.HasPrefix(name, known.prefix) {
			continue
		}
		if loadErr := s.load(known.module); loadErr != nil {
			return nil, errors.Join(err, loadErr)
		}
		return os.ReadFile(file)
	}
	return value, err
}

// sysctlName returns a sysctl's path below procSys. The first separator says which
// of '.' and '/' separates the words; inside a word the other one stands for it,
// as in "net.ipv4.conf.eth0/100.rp_filter" (sysctl.d(5)).
func sysctlName(key string) string {
	if i := strings.IndexAny(key, "./"); i >= 0 && key[i] == '.' {
		return strings.NewReplacer(".", "/", "/", ".").Replace(key)
	}
	return key
}

// sysctlFile returns a sysctl's file below procSys. Its name must begin with one of
// kinds.
func sysctlFile(key string, kinds ...string) (string, error) {
	name := sysctlName(key)
	has := func(kind string) bool { return strings.HasPrefix(name, kind) }
	if path.Join("/", name) != "/"+name || !slices.ContainsFunc(kinds, has) {
		return "", fmt.Errorf("set sysctl %q: want a name in %s", key, strings.Join(kinds, " or "))
	}
	return name, nil
}
