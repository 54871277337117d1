package container

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// OOMHints returns a channel that receives a value when the OOM killer may have
// killed a process of the container, and is closed when the container's last
// process has exited. The caller must drain it.
func (c *Container) OOMHints() (<-chan struct{}, error) {
	hints, err := c.lib.NotifyOOM()
	if err != nil {
		return nil, fmt.Errorf("watch memory of container %s: %w", c.id, err)
	}
	return hints, nil
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
