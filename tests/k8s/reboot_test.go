package k8s

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/engines/host"
	"github.com/katabox/katabox/tests/k8s/node"
)

// Pods come back after the node's reboot, which takes all but the disks: processes,
// mounts, namespaces, /run and cgroups. Nothing of the old pods is left when the
// new ones are gone, which the stage checks.
func TestNodeReboots(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		var pods []string
		for _, s.runtime = range []string{runc, kata} {
			pods = append(pods, s.pod("reboot", countingPod))
		}
		for _, pod := range pods {
			s.ready(pod)
		}
		s.reboot()
		for _, pod := range pods {
			s.until("restarts of "+pod, "restarted, True", func() string {
				return s.restarted(pod) + ", " + s.get(pod, ".status.conditions[?(@.type=='Ready')].status")
			})
			s.goesOn("reboot", pod)
			s.Logf("%s: last states: %s; restarts %s", pod, s.get(pod, ".status.containerStatuses[*].lastState.terminated['exitCode','reason']"),
				s.get(pod, ".status.containerStatuses[*].restartCount"))
		}
		s.untilRecords(1)
	})
}

// untilRecords waits until Katabox has records of so many pods.
func (s *stage) untilRecords(n int) {
	s.Helper()
	s.until("records of pods", strconv.Itoa(n), func() string {
		entries, err := os.ReadDir(recordsDir)
		if err != nil {
			return err.Error()
		}
		return strconv.Itoa(len(entries))
	})
}

// reboot takes what a reboot takes from containerd, the kubelet and the pods. The
// control plane is on this host too, and goes on.
func (s *stage) reboot() {
	s.Helper()
	if host.Name() == "" {
		s.Fatal("only a private host can be rebooted")
	}
	if err := s.node.Down(s.ctx, node.Kubelet, node.Containerd); err != nil {
		s.Fatal(err)
	}
	s.killAll()
	s.unmountPods()
	for _, dir := range []string{"/run/containerd", "/run/runc", "/run/netns", "/run/kata-containers/*", recordsDir + "/*", "/run/vc"} {
		s.emptyRun(dir)
	}
	s.removeCgroups()
	if err := s.node.Boot(s.ctx); err != nil {
		s.Fatal(err)
	}
}

// killAll kills all processes of the host but the test and the control plane.
func (s *stage) killAll() {
	s.Helper()
	keep := append(s.node.PIDs(), 1, os.Getpid())
	s.until("processes", "", func() string {
		names, err := filepath.Glob("/proc/[0-9]*/comm")
		if err != nil {
			s.Fatal(err)
		}
		var left []string
		for _, name := range names {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if slices.Contains(keep, pid) || isZombie(pid) {
				continue
			}
			comm, _ := os.ReadFile(name) // it may have ended
			left = append(left, strings.TrimSpace(string(comm)))
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		return strings.Join(left, " ")
	})
}

// removeCgroups removes the pods' cgroups, and those of Katabox for overhead.
func (s *stage) removeCgroups() {
	s.Helper()
	overheads, err := bed.records.overheads()
	if err != nil {
		s.Fatal(err)
	}
	for _, line := range overheads {
		if err := unix.Rmdir(strings.TrimPrefix(line, "cgroup ")); err != nil && !errors.Is(err, unix.ENOENT) {
			s.Error(err)
		}
	}
	if err := removeCgroups(); err != nil {
		s.Error(err)
	}
}

// isZombie reports whether a process has ended, or is gone.
func isZombie(pid int) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err != nil || strings.Contains(string(status), "\nState:\tZ")
}

// unmountPods unmounts what engines and the kubelet have mounted for pods, the last
// first.
func (s *stage) unmountPods() {
	s.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		s.Fatal(err)
	}
	for _, line := range slices.Backward(strings.Split(strings.TrimSpace(string(table)), "\n")) {
		path := strings.Fields(line)[4]
		for _, top := range []string{"/run/containerd/", "/run/netns/", "/run/kata-containers/", "/var/lib/kubelet/", "/var/lib/containerd/"} {
			if !strings.HasPrefix(path, top) {
				continue
			}
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				s.Errorf("unmount %s: %v", path, err)
			}
		}
	}
}

// emptyRun removes files of /run, but the directory that the records are watched in.
func (s *stage) emptyRun(pattern string) {
	s.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		s.Fatal(err)
	}
	for _, path := range paths {
		if path == recordsDir {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			s.Error(err)
		}
	}
}
