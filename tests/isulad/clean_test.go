package isulad

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/isulad/engine"
)

// A container's id is in the command lines of its shim, QEMU and virtiofsd, and
// in every path made for it.

// processesOf returns a sandbox's host processes by program name, without
// zombies, which hold nothing.
func processesOf(id string) map[string]int {
	found := map[string]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		args, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // empty for a zombie
		if err != nil || !bytes.Contains(args, []byte(id)) {
			continue
		}
		name, _, _ := bytes.Cut(args, []byte{0})
		found[filepath.Base(string(name))] = pid
	}
	return found
}

// The names of a sandbox's processes.
const (
	shimName      = "containerd-shim-kata-v2"
	qemuName      = "qemu-system-x86_64"
	virtiofsdName = "virtiofsd"
)

// leftOf lists what is left of a container on the host: its processes, what the
// runtime made for it, its socket. The socket does not count while another
// container shares the shim.
func leftOf(c *engine.Container) []string {
	var left []string
	for name, pid := range processesOf(c.ID) {
		left = append(left, fmt.Sprintf("process %d (%s)", pid, name))
	}
	state, err := harness.ReadHostState()
	if err != nil {
		return append(left, err.Error())
	}
	for line := range state {
		// The engine's own mount stays until the container is removed.
		if strings.Contains(line, c.ID) && !strings.Contains(line, c.Bundle()+"/mounts/shm ") {
			left = append(left, line)
		}
	}
	if path, ok := strings.CutPrefix(c.Address(), "unix://"); ok && (bed.pod == nil || bed.pod == c || bed.pod.Address() != c.Address()) {
		if _, err := os.Stat(path); err == nil {
			left = append(left, "socket "+path)
		}
	}
	slices.Sort(left)
	return left
}

// awaitClean waits until nothing of the containers is left: a shim exits
// shortly after its last answer.
func awaitClean(ctx context.Context, containers ...*engine.Container) error {
	var left []string
	ok := eventually(ctx, time.Minute, func() bool {
		left = nil
		for _, c := range containers {
			left = append(left, leftOf(c)...)
		}
		return len(left) == 0
	})
	if !ok {
		return fmt.Errorf("left behind:\n  %s", strings.Join(left, "\n  "))
	}
	return nil
}

// force kills the processes of a container that a failed test left, for the
// next run.
func force(c *engine.Container) {
	for _, pid := range processesOf(c.ID) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// mountsBelow returns the mount points below a directory.
func mountsBelow(dir string) []string {
	data, _ := os.ReadFile("/proc/self/mountinfo")
	var found []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			found = append(found, fields[4])
		}
	}
	return found
}
