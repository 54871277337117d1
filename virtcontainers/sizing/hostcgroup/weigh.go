package hostcgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// mostTogether returns the most that all overheads weigh together, however many
// pods boot concurrently: the weight that the kubelet gives the cgroup of all
// pods on a host with that many CPUs. More would starve the engine, and with it
// the next pod's QEMU.
func (h hierarchy) mostTogether() uint64 {
	shares := min(resource.DefaultShares*uint64(config.HostCPUs()), resource.MaxShares)
	if h.unified {
		return weight(shares)
	}
	return shares
}

// weighOverhead gives the pod's overhead its weight, and the group of all pods'
// overheads their sum: with the default weight the device work of a hundred
// pods would count as a single process's.
func (p place) weighOverhead(shares uint64) error {
	if err := p.setWeight(p.overhead, shares); err != nil {
		return fmt.Errorf("overhead: %w", err)
	}
	return p.weighGroups()
}

// weighGroups weighs the groups that the overhead is in: that of all pods, and
// before that the one of all spares if it is a spare's.
func (p place) weighGroups() error {
	all := p.dir(overheadDir)
	if group := filepath.Dir(p.overhead); group != all {
		if err := p.weighAll(group); err != nil {
			return err
		}
	}
	return p.weighAll(all)
}

// weighAll sets the weight of a cgroup that pods share to the sum of its
// children's. Other pods do so too; the last one counts all.
func (h hierarchy) weighAll(all string) error {
	if all == h.mount || !marked(all) {
		return nil // it is another's
	}
	dir, err := os.Open(all)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	lockDir(dir)
	sum, err := h.sumWeights(all)
	if err != nil || sum == 0 {
		return err
	}
	err = write(filepath.Join(all, h.weightFile()), strconv.FormatUint(min(sum, h.mostTogether()), 10))
	if err != nil && !gone(err) {
		return fmt.Errorf("weigh all overheads: %w", err)
	}
	return nil
}

const (
	// lockTries bounds the wait for other pods, whose counting is brief;
	// lockPause is the time between tries.
	lockTries = 20
	lockPause = 5 * time.Millisecond
)

// lockDir keeps others from counting until dir is closed. It gives up waiting
// for a process that was stopped while counting: the sum may then be outdated.
func lockDir(dir *os.File) {
	for range lockTries {
		if unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			return
		}
		time.Sleep(lockPause)
	}
}

// sumWeights returns the sum of the weights of a cgroup's children. Those
// removed meanwhile weigh nothing.
func (h hierarchy) sumWeights(dir string) (sum uint64, err error) {
	children, err := os.ReadDir(dir)
	if gone(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, child := range children {
		if !child.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, child.Name(), h.weightFile()))
		if gone(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read weight of %s: %w", child.Name(), err)
		}
		sum += n
	}
	return sum, nil
}
