package guestspec

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"
)

// Features is what containers in a guest get, whatever the host has:
// its kernel and its libcontainer are ours.
func Features() *features.Features {
	yes, no := true, false
	return &features.Features{
		OCIVersionMin: "1.0.0",
		OCIVersionMax: specs.Version,
		MountOptions: []string{"bind", "idmap", "nodev", "noexec", "nosuid", "private", "rbind", "relatime", "ridmap", "ro",
			"rprivate", "rro", "rshared", "rslave", "rw", "shared", "slave", "strictatime", "sync"},
		Linux: &features.Linux{
			Namespaces: []string{"cgroup", "ipc", "mount", "network", "pid", "user", "uts"},
			// The host's kernel maps, and refuses what it cannot.
			MountExtensions: &features.MountExtensions{IDMap: &features.IDMap{Enabled: &yes}},
			Cgroup:          &features.Cgroup{V1: &no, V2: &yes, Systemd: &no, SystemdUser: &no, Rdma: &no},
			Seccomp:         &features.Seccomp{Enabled: &yes},
			Apparmor:        &features.Apparmor{Enabled: &no},
			Selinux:         &features.Selinux{Enabled: &no},
			IntelRdt:        &features.IntelRdt{Enabled: &no},
		},
	}
}
