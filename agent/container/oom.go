package container

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// WatchOOM calls hint at once, and whenever the OOM killer may have killed a process of
// the container since. It blocks until ctx is done, which alone ends it: the kernel may
// lose the last event of a cgroup that is removed (cgroup.events has a new one within
// 10 ms wait for a timer, which the removal stops; kernel/cgroup/cgroup.c,
// cgroup_file_notify and cgroup_rm_file).
func (c *Container) WatchOOM(ctx context.Context, hint func()) error {
	if err := eachChange(ctx, c.cgroupFile("memory.events"), hint); err != nil {
		return fmt.Errorf("watch memory of container %s: %w", c.id, err)
	}
	return nil
}

// OOMKills returns how many processes of the container the OOM killer has killed.
// The kernel counts before it kills (mm/oom_kill.c): the count includes every
// victim that has been reaped.
func (c *Container) OOMKills() (uint64, error) {
	events, err := os.ReadFile(c.cgroupFile("memory.events"))
	if err != nil {
		return 0, fmt.Errorf("read memory events of container %s: %w", c.id, err)
	}
	return parseOOMKills(string(events))
}

func parseOOMKills(events string) (uint64, error) {
	for line := range strings.Lines(events) {
		if value, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, nil
}
