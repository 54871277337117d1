package container

import (
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// ipcSysctls are the settings of an IPC namespace, besides those of fs/mqueue
// (namespaces(7)).
var ipcSysctls = []string{
	"kernel/msgmax", "kernel/msgmnb", "kernel/msgmni", "kernel/sem", "kernel/shmall", "kernel/shmmax", "kernel/shmmni", "kernel/shm_rmid_forced",
}

// takeIPCSysctls removes from l the settings of the pod's IPC namespace that a
// container in a user namespace cannot write, and returns them: the guest's initial
// user namespace owns that IPC namespace. Since Linux 6.11 a container can write
// those of an IPC namespace that its own user namespace owns, as on a host.
func takeIPCSysctls(l *specs.Linux, at Placement) map[string]string {
	taken := map[string]string{}
	if at.IPC == "" || !slices.ContainsFunc(l.Namespaces, isUser) {
		return taken
	}
	for key, value := range l.Sysctl {
		if name := sysctlName(key); slices.Contains(ipcSysctls, name) || strings.HasPrefix(name, "fs/mqueue/") {
			taken[key] = value
		}
	}
	for key := range taken {
		delete(l.Sysctl, key)
	}
	return taken
}

// setIPCSysctls writes settings of the IPC namespace at path.
func setIPCSysctls(path string, values map[string]string) (undo func() error, err error) {
	if len(values) == 0 {
		return func() error { return nil }, nil
	}
	var back func() error
	err = inIPC(path, func() error {
		var err error
		back, err = sysctls{dir: procSys}.set(values, "kernel/", "fs/mqueue/")
		return err
	})
	return func() error { return inIPC(path, back) }, err
}

// inIPC calls do on a thread in the IPC namespace at path: the kernel chooses the
// namespace of a setting by the thread that opens its file.
func inIPC(path string, do func() error) error {
	t, err := newThread(0)
	if err != nil {
		return err
	}
	defer t.close()
	return t.do(func() error {
		if err := enter(unix.CLONE_NEWIPC, path); err != nil {
			return err
		}
		return do()
	})
}
