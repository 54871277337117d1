package containerd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// firstUID and its number are rootless_first_uid and rootless_uids by default.
const (
	firstUID = 1879048192
	uids     = 65536
)

// statusOf returns the kernel's status of a process.
func statusOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		all[name] = strings.TrimSpace(value)
	}
	return all
}

// userOf returns a process's only user id, which is its only group id too.
func userOf(t *testing.T, status map[string]string) int {
	t.Helper()
	ids := append(strings.Fields(status["Uid"]), strings.Fields(status["Gid"])...)
	if ids = slices.Compact(ids); len(ids) != 1 || status["Groups"] != "" {
		t.Errorf("user and group ids %q, groups %q", ids, status["Groups"])
	}
	uid, err := strconv.Atoi(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	return uid
}

// wantJailed fails the test unless a QEMU has none of root's rights and none of
// the host's files, and returns its user.
func wantJailed(t *testing.T, pid int) int {
	t.Helper()
	status := statusOf(t, pid)
	const none = "0000000000000000"
	for name, want := range map[string]string{
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2",
	} {
		if status[name] != want {
			t.Errorf("QEMU's %s is %q, want %q", name, status[name], want)
		}
	}
	uid := userOf(t, status)
	if uid < firstUID || uid >= firstUID+uids {
		t.Errorf("QEMU's user is %d", uid)
	}
	root := fmt.Sprintf("/proc/%d/root", pid)
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	known := []string{"boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "memory", "usr", "nix", "gnu"}
	if harness.UseTemplates() {
		known = append(known, "fd") // QEMU's own descriptors: private memory is opened by one
	}
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) {
			t.Errorf("QEMU's root has %s", e.Name())
		}
	}
	for _, name := range []string{"etc/passwd", "etc/shadow", "proc", "sys", "run", "var", "root", "usr/bin/sh", "dev/net", "dev/mem"} {
		if _, err := os.Lstat(filepath.Join(root, name)); !os.IsNotExist(err) {
			t.Errorf("QEMU's root has %s: %v", name, err)
		}
	}
	if dev, err := os.ReadDir(filepath.Join(root, "dev")); err != nil || len(dev) > 3 { // kvm, null, urandom
		t.Errorf("QEMU's devices: %v, %v", dev, err)
	}
	return uid
}

// wantNoWayOut fails the test if a QEMU has a directory open, which could lead
// out of the jail.
func wantNoWayOut(t *testing.T, pid int) {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) < 5 {
		t.Fatalf("QEMU's descriptors: %q, %v", fds, err)
	}
	for _, fd := range fds {
		if info, err := os.Stat(fd); err == nil && info.IsDir() {
			target, _ := os.Readlink(fd)
			t.Errorf("QEMU has the directory %s open", target)
		}
	}
}

// networkWithLink makes a network namespace with a link for a pod, and returns
// its path.
func networkWithLink(t *testing.T, d *harness.Daemon) string {
	t.Helper()
	name := d.NewID("jail")
	for _, line := range []string{
		"netns add " + name,
		"-n " + name + " link add eth7 type veth peer name peer7",
		"-n " + name + " addr add 10.99.7.2/24 dev eth7",
		"-n " + name + " link set eth7 up", "-n " + name + " link set peer7 up",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
		if strings.HasPrefix(line, "netns add") {
			t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", name).Run() })
		}
	}
	return "/run/netns/" + name
}

// A pod's QEMU is unprivileged, and everything works: a disk, a NIC, a volume,
// memory hot-plug, an exec.
func TestQEMUIsNobody(t *testing.T) {
	needVM(t)
	newestOwn(t, func(o *harness.Options) { o.Kata.Extra = "default_maxmemory = 1024\n" }, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		network := oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: networkWithLink(t, d)})
		pod, err := d.NewPod(ctx, "pod", network)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removed(t, "the pod", pod.Remove) })
		qemu := qemuOf(t, d)
		wantJailed(t, qemu)
		wantNoWayOut(t, qemu)

		volume := t.TempDir()
		host := newHostDisk(t, d, "disk")
		cfg := limited("all", 50_000, 100*mib, 50)
		cfg.Spec = append(cfg.Spec, network, host.as("/dev/data", "rw"), oci.WithMounts([]specs.Mount{
			{Type: "bind", Source: volume, Destination: "/volume", Options: []string{"rbind", "rw"}},
		}))
		c := add(ctx, t, pod, cfg)
		wantGuest(ctx, t, c, 2, 384)
		works(ctx, t, c, "echo written >/volume/file && test -e /sys/class/net/eth7")
		if text, err := os.ReadFile(filepath.Join(volume, "file")); err != nil || string(text) != "written\n" {
			t.Errorf("the volume has %q, %v", text, err)
		}
		writeDisk(ctx, t, c, "/dev/data", 8, "block")
		host.wantWritten(t, 8, "block")
		wantJailed(t, qemu)
		wantNoWayOut(t, qemu)
	})
}

// Each pod's QEMU has a different user; with rootless off, which no pod can choose, it is
// root.
func TestUsersOfQEMU(t *testing.T) {
	needVM(t)
	newestOwn(t, func(o *harness.Options) {
		o.Kata.Extra = "enable_annotations = [\"rootless\"]\nrootless_first_uid = 1900000000\nrootless_uids = 1\nseccompsandbox = \"off\"\n"
	}, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		status := statusOf(t, qemuOf(t, d))
		if uid := userOf(t, status); uid != 1900000000 || status["Seccomp"] != "0" {
			t.Errorf("QEMU's user is %d, its filter %s", uid, status["Seccomp"])
		}
		if second, err := d.NewPod(ctx, "second"); err == nil || !strings.Contains(err.Error(), "all 1 from 1900000000 on are in use") {
			t.Errorf("a second pod without a free user id: %v", err)
			if err == nil {
				removed(t, "the second pod", second.Remove)
			}
		}
		if err := pod.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		chosen := oci.WithAnnotations(map[string]string{"io.katacontainers.config.hypervisor.rootless": "false"})
		if own, err := d.NewPod(ctx, "chosen", chosen); err == nil || !strings.Contains(err.Error(), "only the configuration file can run QEMU as root") {
			t.Errorf("a pod that would run its QEMU as root: %v", err)
			if err == nil {
				removed(t, "that pod", own.Remove)
			}
		}
		dropIn(t, d, "60-root.toml", "[hypervisor.qemu]\nrootless = false\n")
		root, err := d.NewPod(ctx, "root")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removed(t, "the pod", root.Remove) })
		if status := statusOf(t, qemuOf(t, d)); userOf(t, status) != 0 {
			t.Errorf("QEMU's user is %s", status["Uid"])
		}
	})
}
