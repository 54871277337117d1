package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/container/inside"
)

// warmUpID is the id of the container that WarmUp makes.
const warmUpID = "warm-up"

// warmUpProgram is where that container has this program.
const warmUpProgram = "/agent"

// WarmUp makes, runs and removes a container whose only file is this program.
// Afterwards the guest has in memory what the first container of a pod would
// otherwise wait for: pages of this program, the kernel's caches and, without
// KVM, QEMU's translation of all that code. Nothing of the container is left.
func (r *Runtime) WarmUp() (err error) {
	run := filepath.Dir(r.StateDir)
	if err := os.MkdirAll(run, 0o711); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	root, err := os.MkdirTemp(run, warmUpID)
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("warm up: find this program: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	defer null.Close()
	spec, err := asSent(warmUpSpec(root, self))
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	silent := &Runtime{StateDir: r.StateDir, Children: r.Children, Confine: r.Confine}
	c, init, err := silent.Create(spec, Placement{ID: warmUpID}, Stdio{Stdin: null, Stdout: null, Stderr: null})
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	err = c.Start()
	if err != nil {
		err = errors.Join(err, c.Kill())
	}
	exit := init.Wait()
	if err == nil && exit.Status != 0 {
		err = fmt.Errorf("exit status %d", exit.Status)
	}
	if err = errors.Join(err, c.Destroy()); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	return nil
}

// asSent returns a spec as it comes from the host: the decoder of the first one is
// slow too.
func asSent(spec *specs.Spec) (*specs.Spec, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode spec: %w", err)
	}
	var sent specs.Spec
	if err := json.Unmarshal(text, &sent); err != nil {
		return nil, fmt.Errorf("decode spec: %w", err)
	}
	return &sent, nil
}

// warmUpSpec is a container like those that engines ask for: the more of them it
// uses, the less is new to the guest afterwards.
func warmUpSpec(root, self string) *specs.Spec {
	pids := int64(100)
	shares := uint64(1024)
	return &specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: root, Readonly: true},
		Process: &specs.Process{
			Args: []string{warmUpProgram, inside.Nothing}, Cwd: "/", Env: []string{"PATH=/"}, NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{Bounding: warmUpCapabilities, Effective: warmUpCapabilities, Permitted: warmUpCapabilities},
			Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 1024, Soft: 1024}},
		},
		Hostname: warmUpID,
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
			{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
			{Destination: warmUpProgram, Type: "bind", Source: self, Options: []string{"rbind", "ro"}},
		},
		Linux: &specs.Linux{
			MaskedPaths:   []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			Resources: &specs.LinuxResources{
				Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
				CPU:     &specs.LinuxCPU{Shares: &shares},
				Pids:    &specs.LinuxPids{Limit: &pids},
			},
		},
	}
}

// warmUpCapabilities are some of those that engines give by default.
var warmUpCapabilities = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETGID", "CAP_SETUID"}
