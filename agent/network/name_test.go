package network

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestPlanNames(t *testing.T) {
	tests := map[string]struct {
		have, want map[int]string
		movable    []int
		steps      int
		fails      func(error) bool
	}{
		"nothing":              {have: map[int]string{1: "lo"}},
		"named already":        {have: map[int]string{2: "eth0"}, want: map[int]string{2: "eth0"}},
		"one":                  {have: map[int]string{2: "eth0"}, want: map[int]string{2: "net1"}, steps: 1},
		"swap":                 {have: map[int]string{2: "a", 3: "b"}, want: map[int]string{2: "b", 3: "a"}, steps: 3},
		"ring":                 {have: map[int]string{2: "a", 3: "b", 4: "c"}, want: map[int]string{2: "b", 3: "c", 4: "a"}, steps: 5},
		"chain":                {have: map[int]string{2: "a", 3: "b"}, want: map[int]string{2: "b", 3: "c"}, steps: 3},
		"one in the way":       {have: map[int]string{2: "a", 3: "b"}, want: map[int]string{2: "b"}, movable: []int{3}, steps: 2},
		"temporary is taken":   {have: map[int]string{2: "a", 3: "b", 4: "nic3"}, want: map[int]string{2: "b"}, movable: []int{3}, steps: 2},
		"temporary is wanted":  {have: map[int]string{2: "a", 3: "b"}, want: map[int]string{2: "b", 3: "nic3"}, steps: 3},
		"of another interface": {have: map[int]string{2: "a", 3: "b"}, want: map[int]string{2: "b"}, fails: errdefs.IsAlreadyExists},
		"not there":            {have: map[int]string{3: "b"}, want: map[int]string{2: "a"}, fails: errdefs.IsNotFound},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			plan, err := planNames(test.have, test.want, func(i int) bool { return slices.Contains(test.movable, i) })
			if test.fails != nil {
				if !test.fails(err) {
					t.Errorf("%v, %v", plan, err)
				}
				return
			}
			if err != nil || len(plan) != test.steps {
				t.Errorf("%d steps %v, %v, want %d", len(plan), plan, err, test.steps)
			}
			now := maps.Clone(test.have)
			for _, step := range plan {
				if now[step.index] != step.from || slices.Contains(slices.Collect(maps.Values(now)), step.to) {
					t.Fatalf("step %v in %v", step, now)
				}
				now[step.index] = step.to
			}
			for index, name := range test.want {
				if now[index] != name {
					t.Errorf("%d is %s, want %s", index, now[index], name)
				}
			}
		})
	}
}

// A NIC that has the wanted name by chance is renamed all the same, if it is new and down:
// a container's udev would replace a name that the kernel has numbered.
func TestNamesAreClaimed(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		sysfs := ownSysfs(t)
		g := newGuest(t, 2)
		named(t, sysfs, "eth0", byUser)
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		// A name that the NIC would have for a moment.
		must(t, netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("nic%d", link.Attrs().Index), TxQLen: 1000}, PeerName: "other",
		}))
		for _, change := range g.apply(twoNICs()) {
			if strings.Contains(change, "eth0 renamed") {
				t.Error(change)
			}
		}
		named(t, sysfs, "eth0", byRename)
		named(t, sysfs, "net1", byRename)
	})
	inNamespace(t, func(t *testing.T) {
		sysfs := ownSysfs(t)
		g := newGuest(t, 1)
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		must(t, netlink.LinkSetUp(link))
		g.apply(oneNIC())
		named(t, sysfs, "eth0", byUser)
	})
}

// How a link got its name (include/uapi/linux/netdevice.h, NET_NAME_*). Those of the tests'
// links are the user's.
const byUser, byRename = "3", "4"

func named(t *testing.T, sysfs, name, want string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sysfs, "class/net", name, "name_assign_type"))
	must(t, err)
	if got := strings.TrimSpace(string(text)); got != want {
		t.Errorf("%s got its name in way %s, want %s", name, got, want)
	}
}

// ownSysfs mounts the sysfs of the thread's network namespace, for this thread alone.
func ownSysfs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Unshare(unix.CLONE_NEWNS))
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, unix.Mount("sysfs", dir, "sysfs", 0, ""))
	return dir
}
