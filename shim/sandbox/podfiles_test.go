package sandbox_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sandboxapi "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/task"
	"github.com/katabox/katabox/virtcontainers"
)

// message encodes one field of bytes, pair one entry of a map.
func message(num protowire.Number, content string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), content))
}

func pair(num protowire.Number, key, value string) string {
	return message(num, message(1, key)+message(2, value))
}

// The sysctls of a pod without a pause container are in its configuration alone. Its
// annotations there do not count, and the log says so: no pod_annotations choose them.
func TestPodsSysctls(t *testing.T) {
	var booted virtcontainers.Options
	s := newShimWith(t, func(o *task.Options) {
		o.Configured = func(o virtcontainers.Options) { booted = o }
	})
	dir := t.TempDir()
	linux := pair(3, "net.core.somaxconn", "7") + message(1, "/parent") + pair(3, "kernel.shm_rmid_forced", "1")
	dns := message(4, message(2, "a.example")+message(1, "192.0.2.1")+message(2, "b.example")+message(1, "192.0.2.2")+message(3, "ndots:5"))
	options := message(1, "metadata") + message(2, "web") + dns + pair(7, "io.katacontainers.config.agent.enable_tracing", "true") + pair(7, "other", "x") + message(8, linux)
	defer unix.Umask(unix.Umask(0o077)) // as an engine may have it
	_, err := s.CreateSandbox(t.Context(), &sandboxapi.CreateSandboxRequest{
		SandboxID: id, BundlePath: dir, Options: &anypb.Any{TypeUrl: "runtime.v1.PodSandboxConfig", Value: []byte(options)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.StartSandbox(t.Context(), &sandboxapi.StartSandboxRequest{SandboxID: id}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"net.core.somaxconn": "7", "kernel.shm_rmid_forced": "1",
		"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 2147483647",
	}
	if !maps.Equal(booted.Sysctls, want) {
		t.Errorf("sysctls %v, want %v", booted.Sysctls, want)
	}
	if said := strings.Join(booted.Config.Warnings, "\n"); !strings.Contains(said, "enable_tracing") || strings.Contains(said, "other") {
		t.Errorf("warnings %q", booted.Config.Warnings)
	}
	checkFiles(t, booted, dir)
}

// checkFiles checks what an engine with a pause container would have written.
func checkFiles(t *testing.T, booted virtcontainers.Options, dir string) {
	t.Helper()
	mounts := make(map[string]string)
	for _, m := range booted.Mounts {
		mounts[m.Destination] = m.Source
	}
	want := map[string]string{
		"/dev/shm": "/dev/shm", "/etc/resolv.conf": dir + "/resolv.conf", "/etc/hostname": dir + "/hostname", "/etc/hosts": dir + "/hosts",
	}
	if !maps.Equal(mounts, want) || booted.Network.ResolvConf != mounts["/etc/resolv.conf"] {
		t.Errorf("mounts %v, resolv.conf %s; want %v", mounts, booted.Network.ResolvConf, want)
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"resolv.conf": "search a.example b.example\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions ndots:5\n", "hostname": "web\n", "hosts": string(hosts),
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != 0o644 {
			t.Errorf("%s: %v, %v; every user of a container reads it", name, info.Mode(), err)
		}
	}
}

// A pod that says nothing of DNS has the host's.
func TestPodWithoutDNS(t *testing.T) {
	s, dir := newShim(t), t.TempDir()
	if _, err := s.CreateSandbox(t.Context(), &sandboxapi.CreateSandboxRequest{SandboxID: id, BundlePath: dir, Options: hostname("web")}); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		t.Skip(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "resolv.conf")); err != nil || string(got) != string(want) {
		t.Errorf("resolv.conf is %q, %v; want the host's", got, err)
	}
}

// A pod that says nothing of its name has the host's, in its /etc/hostname and for
// uname(2): with a pause container, too, both are the same.
func TestPodWithoutHostname(t *testing.T) {
	s, dir := newShim(t), t.TempDir()
	if _, err := s.CreateSandbox(t.Context(), &sandboxapi.CreateSandboxRequest{SandboxID: id, BundlePath: dir, Options: hostname("")}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.StartSandbox(t.Context(), &sandboxapi.StartSandboxRequest{SandboxID: id}); err != nil {
		t.Fatal(err)
	}
	want, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := s.host.Agent.Network().GetHostname(); got != want {
		t.Errorf("the guest's host name is %q, want %q", got, want)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "hostname")); err != nil || string(got) != want+"\n" {
		t.Errorf("/etc/hostname is %q, %v; want %q", got, err, want)
	}
}

// Linux takes no longer name: the pod would have another one than it was given.
func TestPodWithALongHostname(t *testing.T) {
	s := newShim(t)
	_, err := s.CreateSandbox(t.Context(), &sandboxapi.CreateSandboxRequest{SandboxID: id, BundlePath: t.TempDir(), Options: hostname(strings.Repeat("x", 65))})
	wantError(t, "create", err, errdefs.IsInvalidArgument)
}
