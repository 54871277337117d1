package engines

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/engines/host"
	"github.com/katabox/katabox/tests/harness"
)

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
	return host.UntilNone(ctx, func() ([]string, error) {
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
		return true // the first pod made it; host.PodsGone checks its content
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
