package engines

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/engines/host"
	"github.com/katabox/katabox/tests/harness"
)

// leakPatience is how long a pod's remains may take to disappear.
const leakPatience = 30 * time.Second

// podsGone waits until the private host, on which only the tests and the engine
// run, has no Katabox shim and no machine, and the runtime's directories are
// empty.
func podsGone(ctx context.Context) error {
	return untilNone(ctx, func() ([]string, error) {
		found, err := vmProcesses()
		if err != nil {
			return nil, err
		}
		files, err := filepath.Glob("/run/kata-containers/*/*")
		return append(found, files...), err
	})
}

// vmProcesses lists the processes that serve pods of Katabox.
func vmProcesses() ([]string, error) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		words := strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		isKata := strings.Contains(words, "containerd-shim-kata-v2") || strings.HasPrefix(string(comm), "qemu-system")
		if isKata && words != "" { // a zombie has none
			found = append(found, filepath.Dir(name)+" "+words)
		}
	}
	return found, nil
}

// hostState is a host before an engine was started.
type hostState struct {
	state harness.HostState
	// mounts are the ids of its mounts. Mounts that the machine had when the
	// private host was made stay in it, and their path changes when a directory
	// above them is renamed outside.
	mounts map[string]bool
}

func readHostState() (h hostState, err error) {
	if h.state, err = harness.ReadHostState(); err != nil {
		return h, err
	}
	h.mounts = map[string]bool{}
	err = eachMount(func(id, _ string) { h.mounts[id] = true })
	return h, err
}

// eachMount calls use with the id and the path of each mount (proc(5), mountinfo).
func eachMount(use func(id, path string)) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			use(fields[0], fields[4])
		}
	}
	return nil
}

// settled waits until the host is as it was before an engine was started,
// except for what engines leave on purpose: bridges, and mounts below their
// roots.
func settled(ctx context.Context, before hostState) error {
	return untilNone(ctx, func() ([]string, error) {
		now, err := harness.ReadHostState()
		if err != nil {
			return nil, err
		}
		var renamed []string
		err = eachMount(func(id, path string) {
			if before.mounts[id] {
				renamed = append(renamed, "mount "+path+" (")
			}
		})
		return slices.DeleteFunc(now.Since(before.state), func(line string) bool {
			wasThere := slices.ContainsFunc(renamed, func(m string) bool { return strings.HasPrefix(line, m) })
			return wasThere || isEngines(line)
		}), err
	})
}

// isEngines reports whether a line of the host's state belongs to an engine.
func isEngines(line string) bool {
	if dir, ok := strings.CutPrefix(line, "file "); ok && filepath.Dir(dir) == "/run/kata-containers" {
		return true // the first pod made it; podsGone checks its content
	}
	for _, own := range []string{
		"mount " + workDir, "mount /run/docker/", "link docker0", "link br-", "link nerdctl", "link podman",
		"mount /run/netns", "netns /run/netns/rootless",
	} {
		if strings.HasPrefix(line, own) {
			return true
		}
	}
	return false
}

// untilNone waits until find finds nothing; the error lists what is left.
func untilNone(ctx context.Context, find func() ([]string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, leakPatience)
	defer cancel()
	for {
		found, err := find()
		if err != nil || len(found) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("left behind:\n  %s", strings.Join(found, "\n  "))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// removeCgroups removes the cgroups that engines leave below the suite's
// parent: unlike everything else, they are the machine's.
func removeCgroups() error { return host.RemoveCgroups(cgroupParent()) }

// The Debian tree of tests/distro is renamed when it is complete, while /proc
// is mounted in it: then that mount's path changes on this host, too.
func TestRenamedMountIsNoLeak(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "unfinished")
	if err := os.MkdirAll(filepath.Join(dir, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("proc", filepath.Join(dir, "proc"), "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	whole := dir + "-no-more"
	t.Cleanup(func() {
		if err := unix.Unmount(filepath.Join(whole, "proc"), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	before, err := readHostState()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, whole); err != nil {
		t.Fatal(err)
	}
	if err := settled(t.Context(), before); err != nil {
		t.Error(err)
	}
}
