package sizing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/config"
)

// limitedGuest notes the limits that it gets, in MiB.
type limitedGuest struct {
	limits  []uint64
	threads uint64 // the last limit
	err     error
}

func (*limitedGuest) SetResources(context.Context, uint32, uint64) (*api.SetResourcesResponse, error) {
	return nil, errors.New("the size is static")
}

func (g *limitedGuest) LimitContainers(_ context.Context, memory, threads uint64) error {
	g.threads = threads
	g.limits = append(g.limits, memory>>20)
	return g.err
}

// limitedPod returns a pod in a cgroup with a limit, whose annotation says what its
// containers may use; 0 for none.
func limitedPod(t *testing.T, cgroup string, saidMiB int, most *Most) (*Pod, *limitedGuest) {
	t.Helper()
	c := new(config.Config)
	c.Runtime.StaticSizing = true
	p := podOf(t, c)
	p.opts.CgroupsPath, p.opts.Most = cgroup, most
	if saidMiB > 0 {
		p.opts.Hints.Annotations = map[string]string{"io.kubernetes.cri.sandbox-memory": fmt.Sprint(saidMiB << 20)}
	}
	if err := p.choose(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := new(limitedGuest)
	p.Connect(g)
	return p, g
}

// limitFiles are where a limit of the cgroup that a container's is in can be.
func limitFiles(cgroup string) []string {
	dir := path.Dir(cgroup)
	return []string{"/sys/fs/cgroup/memory" + dir + "/memory.limit_in_bytes", "/sys/fs/cgroup" + dir + "/memory.max"}
}

// setLimit changes the limit of the cgroup that a container's is in.
func setLimit(t *testing.T, cgroup string, mib int) {
	t.Helper()
	for _, file := range limitFiles(cgroup) {
		if _, err := os.Stat(file); err != nil {
			continue
		}
		if err := os.WriteFile(file, fmt.Append(nil, mib<<20), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// All containers together have in the guest the limit that the host has for them,
// without the pod's overhead, and follow it.
func TestLimitTogether(t *testing.T) {
	cgroup := limitedCgroup(t, 700)
	p, g := limitedPod(t, cgroup, 200, nil)
	admit := func(id string) {
		t.Helper()
		if _, err := p.Admit(t.Context(), container(id, 0)); err != nil {
			t.Fatal(err)
		}
	}
	admit("c1")
	admit("c2")
	setLimit(t, cgroup, 800)
	admit("c3")
	for _, mib := range []int{600, 400} { // less than the overhead leaves it as it is
		setLimit(t, cgroup, mib)
		if err := p.newLookout().follow(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := []uint64{200, 300, 100}; !slices.Equal(g.limits, want) {
		t.Errorf("the guest got the limits %d, want %d", g.limits, want)
	}
}

func TestLimitTogetherOfOthers(t *testing.T) {
	cgroup := limitedCgroup(t, 701)
	for what, test := range map[string]struct {
		cgroup string
		said   int
		most   *Most
		want   []uint64
	}{
		"without a limit on the host": {cgroup: "/kbtest-none/c", said: 200},
		"without an annotation":       {cgroup: cgroup},
		"more than the host allows":   {cgroup: cgroup, said: 800, want: []uint64{701}},
		"a saved guest":               {cgroup: cgroup, most: &Most{VCPUs: 4, MemoryMiB: 1024}, want: []uint64{0}},
	} {
		t.Run(what, func(t *testing.T) {
			p, g := limitedPod(t, test.cgroup, test.said, test.most)
			for _, id := range []string{"c1", "c2"} {
				if _, err := p.Admit(t.Context(), container(id, 0)); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(g.limits, test.want) {
				t.Errorf("the guest got the limits %d, want %d", g.limits, test.want)
			}
		})
	}
}

// A checkpoint of an earlier version can be restored.
func TestLimitTogetherOfOldGuest(t *testing.T) {
	cgroup, saved := limitedCgroup(t, 703), &Most{VCPUs: 4, MemoryMiB: 1024}
	for what, most := range map[string]*Most{"restored": saved, "booted": nil} {
		p, g := limitedPod(t, cgroup, 200, most)
		g.err = errdefs.ErrNotImplemented
		if _, err := p.Admit(t.Context(), container("c1", 0)); (err == nil) != (most == saved) {
			t.Errorf("%s: admitted: %v", what, err)
		}
	}
}

// A guest that may not have taken its limit gets it with the next container, and the
// first one is not created.
func TestLimitTogetherFails(t *testing.T) {
	p, g := limitedPod(t, limitedCgroup(t, 702), 200, nil)
	g.err = errors.New("injected")
	if _, err := p.Admit(t.Context(), container("c1", 0)); !errors.Is(err, g.err) {
		t.Errorf("admitted: %v", err)
	}
	g.err = nil
	if _, err := p.Admit(t.Context(), container("c2", 0)); err != nil {
		t.Error(err)
	}
	if want := []uint64{200, 200}; !slices.Equal(g.limits, want) {
		t.Errorf("the guest got the limits %d, want %d", g.limits, want)
	}
}

// isWatched reports whether the pod looks at its cgroups.
func (p *Pod) isWatched() bool {
	look, stop := p.startLooking()
	stop()
	return look != nil
}

// hasChanged looks at the host once, and reports whether that wakes Watch.
func (l *lookout) hasChanged(t *testing.T) bool {
	t.Helper()
	if err := l.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.pod.smaller:
		return true
	default:
		return false
	}
}

// A new limit of the pod alone is found, and taken over.
func TestLimitTogetherIsWatched(t *testing.T) {
	cgroup := limitedCgroup(t, 705)
	p, g := limitedPod(t, cgroup, 205, nil)
	l := p.newLookout()
	p.opts.EnterAwake = func(context.Context) (func(), error) { return func() {}, nil }
	if _, err := p.Admit(t.Context(), container("c1", 0)); err != nil {
		t.Fatal(err)
	}
	if !p.isWatched() {
		t.Error("nothing is watched")
	}
	if l.hasChanged(t) {
		t.Error("a limit that is the same has changed")
	}
	setLimit(t, cgroup, 605)
	if !l.hasChanged(t) || l.hasChanged(t) {
		t.Error("another limit has not changed, or twice")
	}
	if err := l.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := g.limits[len(g.limits)-1]; got != 105 {
		t.Errorf("the guest got the limits %d, want 105 at last", g.limits)
	}
}

// Limits that could not be followed are followed at the next look.
func TestLimitTogetherIsTriedAgain(t *testing.T) {
	cgroup := limitedCgroup(t, 706)
	p, g := limitedPod(t, cgroup, 206, nil)
	l := p.newLookout()
	p.opts.EnterAwake = func(context.Context) (func(), error) { return func() {}, nil }
	if _, err := p.Admit(t.Context(), container("c1", 0)); err != nil {
		t.Fatal(err)
	}
	setLimit(t, cgroup, 606)
	g.err = errors.New("injected")
	if !l.hasChanged(t) {
		t.Fatal("another limit has not changed")
	}
	if err := l.follow(t.Context()); !errors.Is(err, g.err) {
		t.Fatalf("followed a limit that the guest has not taken: %v", err)
	}
	g.err = nil
	if !l.hasChanged(t) {
		t.Fatal("a limit that could not be followed is forgotten")
	}
	if err := l.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.hasChanged(t) {
		t.Error("a limit that has been followed has changed")
	}
	if got := g.limits[len(g.limits)-1]; got != 106 {
		t.Errorf("the guest got the limits %d, want 106 at last", g.limits)
	}
}

// unreadable makes the limit of the cgroup that a container's is in no number, until mend
// is called or the test ends.
func unreadable(t *testing.T, cgroup string) (mend func()) {
	t.Helper()
	other := path.Join(t.TempDir(), "limit")
	if err := os.WriteFile(other, []byte("many\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range limitFiles(cgroup) {
		if _, err := os.Stat(file); err != nil {
			continue
		}
		if err := unix.Mount(other, file, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("nothing can be mounted here: %v", err)
		}
		mend = sync.OnceFunc(func() {
			if err := unix.Unmount(file, 0); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(mend)
		return mend
	}
	t.Fatal("the cgroup has no limit")
	return nil
}

// Limits that could not be read when they were to be followed are followed later.
func TestUnreadLimitIsTriedAgain(t *testing.T) {
	cgroup := limitedCgroup(t, 707)
	p, g := limitedPod(t, cgroup, 207, nil)
	l := p.newLookout()
	p.opts.EnterAwake = func(context.Context) (func(), error) { return func() {}, nil }
	if _, err := p.Admit(t.Context(), container("c1", 0)); err != nil {
		t.Fatal(err)
	}
	setLimit(t, cgroup, 607)
	if !l.hasChanged(t) {
		t.Fatal("another limit has not changed")
	}
	mend := unreadable(t, cgroup)
	if err := l.follow(t.Context()); err == nil || !strings.Contains(err.Error(), "memory.") {
		t.Errorf("followed a limit that cannot be read: %v", err)
	}
	if l.hasChanged(t) {
		t.Error("a limit that cannot be read has changed")
	}
	mend()
	if !l.hasChanged(t) {
		t.Fatal("a limit that could not be read is forgotten")
	}
	if err := l.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.hasChanged(t) {
		t.Error("a limit that has been followed has changed")
	}
	if got := g.limits[len(g.limits)-1]; got != 107 {
		t.Errorf("the guest got the limits %d, want 107 at last", g.limits)
	}
}

// A container that is created while the limits cannot be read gets them later.
func TestUnreadLimitOfCreate(t *testing.T) {
	cgroup := limitedCgroup(t, 708)
	p, _ := limitedPod(t, cgroup, 208, nil)
	l := p.newLookout()
	mend := unreadable(t, cgroup)
	if _, err := p.Admit(t.Context(), container("c1", 0)); err != nil {
		t.Fatal(err)
	}
	mend()
	if !l.hasChanged(t) {
		t.Error("nothing follows the limits that could not be read")
	}
}
