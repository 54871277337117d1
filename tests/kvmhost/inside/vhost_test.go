package inside

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// The kernel's threads that work for QEMU's vhost devices are in QEMU's cgroup, from
// the start and for a network card that comes later. Before Linux 6.4 they are none of
// QEMU's threads.
func TestVhostIsChargedToThePod(t *testing.T) {
	ctx, d := begin(t)
	ns, err := d.NewNetns()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, "namespace", func(context.Context) error { return ns.Remove() }) })
	addLink(t, ns, "eth0", "10.1.0.2/24")
	pod, err := d.NewPod(ctx, "vhost", harness.InNetns(ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, "pod", pod.Remove) })
	qemu, err := d.One(harness.KindVMM)
	if err != nil {
		t.Fatal(err)
	}
	wantWorkers(ctx, t, qemu.PID, 2) // vsock's and the card's
	addLink(t, ns, "eth1", "10.2.0.2/24")
	wantWorkers(ctx, t, qemu.PID, 3)
}

// addLink adds a link to a namespace, which becomes a network card of its pod. Its other
// end stays down, and so gets no address and no card.
func addLink(t *testing.T, ns harness.Netns, name, addr string) {
	t.Helper()
	for _, args := range [][]string{
		{"link", "add", name, "type", "veth", "peer", "name", name + "-peer"},
		{"link", "set", name, "up"},
		{"addr", "add", addr, "dev", name},
	} {
		if _, err := ns.Run(append([]string{"ip"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
}

// wantWorkers waits until QEMU has count vhost workers, and fails the test unless all
// are in QEMU's cgroup.
func wantWorkers(ctx context.Context, t *testing.T, qemu, count int) {
	t.Helper()
	found := workers(t, qemu)
	for ; len(found) < count && ctx.Err() == nil; found = workers(t, qemu) {
		time.Sleep(10 * time.Millisecond)
	}
	if len(found) != count {
		t.Fatalf("QEMU has the vhost workers %q, want %d", found, count)
	}
	want := cgroupOf(t, fmt.Sprintf("/proc/%d", qemu))
	if !strings.Contains(want, "/kata_") {
		t.Errorf("QEMU is in cgroup %s", want)
	}
	for _, dir := range found {
		if got := cgroupOf(t, dir); got != want {
			t.Errorf("vhost worker %s is in cgroup %s, QEMU in %s", dir, got, want)
		}
	}
}

// workers returns the directories in /proc of QEMU's vhost workers, which are
// processes or QEMU's threads.
func workers(t *testing.T, qemu int) (found []string) {
	t.Helper()
	for _, pattern := range []string{"/proc/[0-9]*", fmt.Sprintf("/proc/%d/task/[0-9]*", qemu)} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range dirs {
			comm, err := os.ReadFile(filepath.Join(dir, "comm"))
			if err == nil && string(comm) == fmt.Sprintf("vhost-%d\n", qemu) {
				found = append(found, dir)
			}
		}
	}
	return found
}

// cgroupOf returns the cgroup of a process or thread.
func cgroupOf(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
