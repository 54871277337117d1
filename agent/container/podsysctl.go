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

// setIPCSysctls writes settings of the IPC namespace at path. The kernel chooses the
// namespace by the thread that opens the file.
func setIPCSysctls(path string, values map[string]string) error {
	if len(values) == 0 {
		return nil
	}
	t, err := newThread(0)
	if err != nil {
		return err
	}
	defer t.close()
	return t.do(func() error {
		if err := enter(unix.CLONE_NEWIPC, path); err != nil {
			return err
		}
		_, err := sysctls{dir: procSys}.set(values, "kernel/", "fs/mqueue/")
		return err
	})
}
