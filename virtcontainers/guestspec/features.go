package guestspec

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"
)

// Features returns what containers in a guest can use, independent of the host:
// the guest's kernel and its libcontainer are ours.
func Features() *features.Features {
	yes, no := true, false
	return &features.Features{
		OCIVersionMin: "1.0.0",
		OCIVersionMax: specs.Version,
		MountOptions: []string{"bind", "idmap", "nodev", "noexec", "nosuid", "private", "rbind", "relatime", "ridmap", "ro",
			"rprivate", "rro", "rshared", "rslave", "rw", "shared", "slave", "strictatime", "sync"},
		Linux: &features.Linux{
			Namespaces: []string{"cgroup", "ipc", "mount", "network", "pid", "time", "user", "uts"},
			// The host's kernel does the mapping, and refuses what it cannot
			// map.
			MountExtensions: &features.MountExtensions{IDMap: &features.IDMap{Enabled: &yes}},
			Cgroup:          &features.Cgroup{V1: &no, V2: &yes, Systemd: &no, SystemdUser: &no, Rdma: &no},
			Seccomp:         &features.Seccomp{Enabled: &yes},
			Apparmor:        &features.Apparmor{Enabled: &no},
			Selinux:         &features.Selinux{Enabled: &no},
			IntelRdt:        &features.IntelRdt{Enabled: &no},
		},
	}
}
