package container

import (
	"os"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// utsNames are names of a UTS namespace; an empty one is not set.
type utsNames struct{ host, domain string }

// takeUTSNames removes from spec the names of the pod's UTS namespace that a container
// in a user namespace cannot set, and returns them: the guest's initial user namespace
// owns that UTS namespace. Of domainname and its sysctl the latter wins, as in a
// container without a user namespace.
func takeUTSNames(spec *specs.Spec, at Placement) utsNames {
	if at.UTS == "" || !slices.ContainsFunc(spec.Linux.Namespaces, isUser) {
		return utsNames{}
	}
	names := utsNames{host: spec.Hostname, domain: spec.Domainname}
	spec.Hostname, spec.Domainname = "", ""
	for key, value := range spec.Linux.Sysctl {
		if sysctlName(key) == "kernel/domainname" {
			names.domain = value
			delete(spec.Linux.Sysctl, key)
		}
	}
	return names
}

// setUTSNames sets names of the UTS namespace at path.
func setUTSNames(path string, names utsNames) error {
	if names == (utsNames{}) {
		return nil
	}
	t, err := newThread(0)
	if err != nil {
		return err
	}
	defer t.close()
	return t.do(func() error {
		if err := enter(unix.CLONE_NEWUTS, path); err != nil {
			return err
		}
		return names.set()
	})
}

// set sets the names of the calling thread's UTS namespace.
func (n utsNames) set() error {
	if n.host != "" {
		if err := unix.Sethostname([]byte(n.host)); err != nil {
			return os.NewSyscallError("sethostname", err)
		}
	}
	if n.domain != "" {
		if err := unix.Setdomainname([]byte(n.domain)); err != nil {
			return os.NewSyscallError("setdomainname", err)
		}
	}
	return nil
}
