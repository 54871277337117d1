package guesttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
)

func TestGuestExitCodes(t *testing.T) {
	m := guestOnly(t)
	for i, code := range []uint32{0, 1, 42, 123, 255} {
		r := m.run(t, fmt.Sprint("codes", i), shell(fmt.Sprintf("echo out; echo err >&2; exit %d", code)))
		if r.exit.GetStatus() != code || r.out != "out\n" || r.errs != "err\n" {
			t.Errorf("exit %d: %+v", code, r)
		}
	}
	if r := m.run(t, "killed", shell("kill -9 $$; sleep 1; exit 3")); r.exit.GetStatus() != 3 {
		t.Errorf("an init cannot kill itself: %+v", r)
	}
}

func TestGuestProgramNotFound(t *testing.T) {
	m := guestOnly(t)
	spec := shell("")
	spec.Process.Args = []string{"nosuch"}
	_, err := m.task.Create(t.Context(), &taskapi.CreateTaskRequest{ID: "nosuch", Options: packed(t, spec, false)})
	if err == nil || !strings.Contains(err.Error(), `exec: "nosuch": executable file not found in $PATH`) {
		t.Errorf("create: %v", err)
	}
	m.run(t, "nosuch", shell("true")) // The id is free.
}

func TestGuestLimits(t *testing.T) {
	m := guestOnly(t)
	spec := shell("cd /sys/fs/cgroup; cat pids.max memory.max cpu.max; ulimit -n; cat /proc/self/cgroup /proc/self/oom_score_adj; grep CapEff /proc/self/status; " +
		"cat /proc/sys/kernel/msgmax /proc/sys/net/ipv4/ip_unprivileged_port_start; hostname; ls -d /sys/class/net/lo")
	r := spec.Linux.Resources
	r.Pids = &specs.LinuxPids{Limit: ptr(int64(77))}
	r.Memory = &specs.LinuxMemory{Limit: ptr(int64(64 << 20)), Swappiness: ptr(uint64(1<<64 - 1))}
	r.CPU = &specs.LinuxCPU{Quota: ptr(int64(50000)), Period: ptr(uint64(100000)), Cpus: "40-47"}
	spec.Linux.Sysctl = map[string]string{"net.ipv4.ip_unprivileged_port_start": "0", "kernel.msgmax": "4321"}
	spec.Process.OOMScoreAdj = ptr(500)
	want := "77\n67108864\n50000 100000\n1024\n0::/\n500\nCapEff:\t00000000080000e1\n4321\n0\npodname\n/sys/class/net/lo\n"
	if got := m.run(t, "limits", spec); got.out != want {
		t.Errorf("got %q, %q\nwant %q", got.out, got.errs, want)
	}
}

func TestGuestConfinement(t *testing.T) {
	m := guestOnly(t)
	tests := map[string]struct{ script, want string }{
		"read-only root": {"touch /x", "Read-only file system"},
		"no mounts":      {"mount -t tmpfs x /tmp", "permission denied"},
		"read-only path": {"echo 1 >/proc/sys/vm/overcommit_memory", "Read-only file system"},
		"no devices":     {"mknod /dev/d b 8 0 && cat /dev/d", "Operation not permitted"},
		"seccomp":        {"sync; chmod 600 /dev/null", "Operation not permitted"},
		"own processes":  {"ls /proc/2/fd", "No such file"},
		"masked file":    {"[ -s /proc/kcore ] || echo empty >&2", "empty"},
		"own root":       {"ls /rootfs", "No such file"},
	}
	for name, test := range tests {
		spec := shell(test.script)
		spec.Root.Readonly = true
		spec.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{
			{Names: []string{"chmod", "fchmodat"}, Action: specs.ActErrno},
		}}
		if r := m.run(t, "confined", spec); !strings.Contains(r.errs, test.want) {
			t.Errorf("%s: %+v, want %q", name, r, test.want)
		}
		m.forget("confined")
	}
}

// forget drops a container's events, so that its id can be reused.
func (m *machine) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = slices.DeleteFunc(m.events, func(e *api.Event) bool { return e.GetExit().GetContainerId() == id })
}

func TestGuestUserNamespace(t *testing.T) {
	m := guestOnly(t)
	spec := shell("id -u; cat /proc/self/uid_map; echo through >/dev/stdout; ls -d /dev/mqueue /sys/class; hostname")
	inUserNamespace(spec)
	want := "0\n         0     100000      65536\nthrough\n/dev/mqueue\n/sys/class\npodname\n"
	if r := m.run(t, "userns", spec); r.out != want {
		t.Errorf("got %q, %q\nwant %q", r.out, r.errs, want)
	}
}

// The pod's IPC namespace is not that of a container's user namespace, so the agent
// sets what the container could not.
func TestGuestSysctlInAUserNamespace(t *testing.T) {
	m := guestOnly(t)
	spec := shell("cat /proc/sys/kernel/shm_rmid_forced /proc/sys/kernel/msgmax")
	inUserNamespace(spec)
	spec.Linux.Sysctl = map[string]string{"kernel.shm_rmid_forced": "1", "kernel.msgmax": "4321"}
	if r := m.run(t, "sysctl", spec); r.out != "1\n4321\n" {
		t.Errorf("got %q, %q", r.out, r.errs)
	}
}

func TestGuestStorage(t *testing.T) {
	guestOnly(t)
	mounts := fileIn(t, "/proc/mounts")
	if !strings.Contains(mounts, "tmpfs "+api.GuestRunDir+"/scratch tmpfs rw,noexec,relatime,size=1024k") {
		t.Error(mounts)
	}
}

// The guest's cgroups are those of a host with systemd.
func TestGuestCgroupOptions(t *testing.T) {
	guestOnly(t)
	if mounts := fileIn(t, "/proc/mounts"); !strings.Contains(mounts, "cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate,memory_recursiveprot ") {
		t.Error(mounts)
	}
}

func TestGuestRootNamesAreNotThePods(t *testing.T) {
	guestOnly(t)
	if name := fileIn(t, "/proc/sys/kernel/hostname"); strings.Contains(name, "podname") {
		t.Errorf("the agent's own host name is %q", name)
	}
}
