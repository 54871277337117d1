package container

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func ptr[T any](v T) *T { return &v }

var testPlacement = Placement{ID: "c1", IPC: "/ns/ipc", UTS: "/ns/uts", Mqueue: "/ns/mqueue", Sysfs: "/ns/sysfs"}

// Of an exec it is named what is dropped, unless engines set it for the host's kernel.
func TestAdjustProcess(t *testing.T) {
	p := &specs.Process{ApparmorProfile: "x", SelinuxLabel: "y"}
	if lost := adjustProcess(p); lost != nil || p.ApparmorProfile+p.SelinuxLabel != "" {
		t.Errorf("lost %q of %+v", lost, p)
	}
	p.ExecCPUAffinity = &specs.CPUAffinity{Final: "0-1"}
	if lost := adjustProcess(p); len(lost) != 1 || !strings.Contains(lost[0], "CPU affinity") || p.ExecCPUAffinity != nil {
		t.Errorf("lost %q, %+v", lost, p)
	}
}

func TestAdjust(t *testing.T) {
	spec := &specs.Spec{
		Hostname:    "h",
		Annotations: map[string]string{"a": "b"},
		Hooks:       &specs.Hooks{Poststop: []specs.Hook{{Path: "/bin/evil"}}},
		Process:     &specs.Process{ApparmorProfile: "x", SelinuxLabel: "y", OOMScoreAdj: ptr(5)},
		Linux: &specs.Linux{
			CgroupsPath: "/kubepods/x",
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.NetworkNamespace, Path: "/proc/7/ns/net"}, {Type: specs.IPCNamespace, Path: "/proc/7/ns/ipc"},
				{Type: specs.CgroupNamespace}, {Type: specs.TimeNamespace},
			},
			Sysctl:  map[string]string{"net.core.somaxconn": "9", "net/ipv4/x": "1", "kernel.msgmax": "2"},
			Seccomp: &specs.LinuxSeccomp{ListenerPath: "/sock", DefaultAction: specs.ActAllow},
			Resources: &specs.LinuxResources{
				Pids:           &specs.LinuxPids{Limit: ptr(int64(7))},
				Memory:         &specs.LinuxMemory{Limit: ptr(int64(1)), Swappiness: ptr(uint64(1<<64 - 1)), DisableOOMKiller: ptr(true)},
				CPU:            &specs.LinuxCPU{Shares: ptr(uint64(2)), Cpus: "40-47", Mems: "1"},
				BlockIO:        &specs.LinuxBlockIO{Weight: ptr(uint16(10))},
				HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB"}},
				Devices:        []specs.LinuxDeviceCgroup{{Access: "rwm"}},
			},
		},
	}
	network := adjust(spec, testPlacement)
	if diff := cmp.Diff(map[string]string{"net.core.somaxconn": "9", "net/ipv4/x": "1"}, network); diff != "" {
		t.Error(diff)
	}
	want := &specs.Spec{
		Hostname: "h",
		Process:  &specs.Process{OOMScoreAdj: ptr(5)},
		Linux: &specs.Linux{
			CgroupsPath: "/katabox/c1",
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace, Path: "/ns/ipc"},
				{Type: specs.UTSNamespace, Path: "/ns/uts"}, {Type: specs.CgroupNamespace}, {Type: specs.TimeNamespace},
			},
			Sysctl:  map[string]string{"kernel.msgmax": "2"},
			Seccomp: &specs.LinuxSeccomp{DefaultAction: specs.ActAllow},
			Resources: &specs.LinuxResources{
				Pids:    &specs.LinuxPids{Limit: ptr(int64(7))},
				Memory:  &specs.LinuxMemory{Limit: ptr(int64(1))},
				CPU:     &specs.LinuxCPU{Shares: ptr(uint64(2))},
				Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}},

				BlockIO:        &specs.LinuxBlockIO{Weight: ptr(uint16(10))},
				HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB"}},
			},
		},
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Error(diff)
	}
}

func TestAdjustEmptySpec(t *testing.T) {
	spec := &specs.Spec{Hostname: "own", Domainname: "own"}
	at := testPlacement
	at.HasHostname, at.PID = true, "/ns/pid"
	adjust(spec, at)
	if spec.Hostname != "" || spec.Domainname != "own" {
		t.Errorf("the pod's name would be changed to %q", spec.Hostname)
	}
	if pid := spec.Linux.Namespaces[1]; pid.Path != "/ns/pid" {
		t.Errorf("%+v", pid)
	}
}

func TestAdjustUserNamespace(t *testing.T) {
	mounts := []specs.Mount{
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue"},
		{Destination: "/proc", Type: "proc", Source: "proc"},
	}
	spec := &specs.Spec{Mounts: mounts, Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.UserNamespace, Path: "/host"}}}}
	adjust(spec, testPlacement)
	want := []specs.Mount{
		{Destination: "/sys", Type: "bind", Source: "/ns/sysfs", Options: []string{"ro", "bind"}},
		{Destination: "/dev/mqueue", Type: "bind", Source: "/ns/mqueue", Options: []string{"bind"}},
		{Destination: "/proc", Type: "proc", Source: "proc"},
	}
	if diff := cmp.Diff(want, spec.Mounts); diff != "" {
		t.Error(diff)
	}
	if ns := spec.Linux.Namespaces[5]; ns.Type != specs.UserNamespace || ns.Path != "" {
		t.Errorf("%+v", ns)
	}
}

func TestSysctlFile(t *testing.T) {
	tests := map[string]string{
		"net.ipv4.ip_forward":               "net/ipv4/ip_forward",
		"net/ipv4/ip_forward":               "net/ipv4/ip_forward",
		"net.ipv4.conf.eth0/100.rp_filter":  "net/ipv4/conf/eth0.100/rp_filter",
		"net/ipv4/conf/eth0.100/rp_filter":  "net/ipv4/conf/eth0.100/rp_filter",
		"net.":                              "",
		"net/../kernel/core_pattern":        "",
		"net.//.kernel.core_pattern":        "",
		"kernel.core_pattern":               "",
		"net/ipv4//ip_forward":              "",
		"netx.a":                            "",
		"":                                  "",
		"net.ipv4.conf.../../kernel.x":      "",
		"net/ipv4/../../../../etc/passwd":   "",
		"net.ipv4/../../../etc.cron.d.evil": "",
	}
	for key, want := range tests {
		got, err := sysctlFile(key, "net/")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", key, got, err, want)
		}
	}
}

// In a user namespace the settings of the pod's IPC namespace are the agent's to make.
func TestTakeIPCSysctls(t *testing.T) {
	ipc := map[string]string{"kernel.msgmax": "1", "kernel/shm_rmid_forced": "1", "fs.mqueue.msg_max": "9"}
	for _, test := range []struct {
		name      string
		namespace specs.LinuxNamespaceType
		path      string
		taken     bool
	}{
		{"user namespace", specs.UserNamespace, "/ns/ipc", true},
		{"no user namespace", specs.PIDNamespace, "/ns/ipc", false},
		{"its own IPC namespace", specs.UserNamespace, "", false},
	} {
		l := &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: test.namespace}}, Sysctl: maps.Clone(ipc)}
		l.Sysctl["kernel.domainname"] = "d"
		taken := takeIPCSysctls(l, Placement{IPC: test.path})
		if test.taken && (!maps.Equal(taken, ipc) || len(l.Sysctl) != 1) || !test.taken && (len(taken) != 0 || len(l.Sysctl) != 4) {
			t.Errorf("%s: took %v, left %v", test.name, taken, l.Sysctl)
		}
	}
}

// FuzzAdjust feeds what a host may send as a spec.
func FuzzAdjust(f *testing.F) {
	f.Add([]byte(`{"linux":{"namespaces":[{"type":"user"}],"resources":{"memory":{"swappiness":18446744073709551615}}}}`))
	f.Add([]byte(`{"linux":{"resources":{"hugepageLimits":[{"pageSize":"2MB","limit":1},{"pageSize":"../2MB"}],"unified":{"memory.high":"1","../x":"2"}}}}`))
	f.Add([]byte(`{"process":{},"mounts":[{"type":"sysfs"}],"linux":{"sysctl":{"net.a":"b"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var spec specs.Spec
		if json.Unmarshal(data, &spec) != nil {
			return
		}
		for key := range adjust(&spec, testPlacement) {
			_, _ = sysctlFile(key)
		}
		if spec.Linux.CgroupsPath != "/katabox/c1" || spec.Hooks != nil {
			t.Error("the host's cgroup or hooks got through")
		}
		if r := spec.Linux.Resources; r != nil {
			fitResources(r, func(string) bool { return true })
			for key := range r.Unified {
				if !mayName(key) {
					t.Errorf("the cgroup's file %q got through", key)
				}
			}
			for _, l := range r.HugepageLimits {
				if strings.Contains(l.Pagesize, "/") {
					t.Errorf("huge pages of %q got through", l.Pagesize)
				}
			}
		}
		for _, ns := range spec.Linux.Namespaces {
			if ns.Type == specs.NetworkNamespace || ns.Type == specs.TimeNamespace && ns.Path != "" {
				t.Errorf("namespace %v got through", ns)
			}
		}
	})
}
