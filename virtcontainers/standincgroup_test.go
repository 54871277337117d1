package virtcontainers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// inCgroup are options for a container with a cgroup and a memory limit.
func (p *pod) inCgroup(id, parent string, limit int64) virtcontainers.ContainerOptions {
	p.t.Helper()
	opts := p.options(id, nil)
	opts.Bundle.Spec.Linux.CgroupsPath = parent + "/" + id
	opts.Bundle.Spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}
	return opts
}

// memoryOf returns the memory limit that is found from a pid, as engines do,
// and the cgroup's directory.
func memoryOf(t *testing.T, pid int) (limit, dir string) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for name, file := range map[string]string{"memory": "memory/%s/memory.limit_in_bytes", "": "%s/memory.max"} {
			path := filepath.Join("/sys/fs/cgroup", fmt.Sprintf(file, fields[2]))
			if data, err := os.ReadFile(path); err == nil && fields[1] == name {
				return strings.TrimSpace(string(data)), filepath.Dir(path)
			}
		}
	}
	t.Skipf("no cgroup limits memory here: %s", data)
	return "", ""
}

// anonymousIn returns the line of a cgroup's memory.stat that counts anonymous memory.
func anonymousIn(t *testing.T, dir string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		// "anon" of cgroup v2 is "rss" of v1.
		if strings.HasPrefix(line, "anon ") || strings.HasPrefix(line, "rss ") {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("no line for anonymous memory: %s", data)
	return ""
}

func TestProcessHasTheContainersCgroup(t *testing.T) {
	parent := ""
	p, _ := cgroupPod(t, func(o *virtcontainers.Options) { parent = filepath.Dir(o.CgroupsPath) })
	c, err := p.Create(t.Context(), p.inCgroup(sandboxID, parent, 32<<20), ignore)
	if err != nil {
		t.Fatal(err)
	}
	limit, dir := memoryOf(t, c.PID())
	if limit != fmt.Sprint(32<<20) || !strings.HasSuffix(dir, parent+"/"+sandboxID) {
		t.Errorf("the container's process has a limit of %s, in %s", limit, dir)
	}
	rec, err := persist.Load(p.host.Platform().StateDir(), sandboxID)
	if diff := cmp.Diff(map[string]string{sandboxID: dir}, rec.StandInCgroups); err != nil || diff != "" {
		t.Errorf("record: %v %s", err, diff)
	}
	p.start(initOf(t, c))
	if line := anonymousIn(t, dir); !strings.HasSuffix(line, " 0") {
		t.Errorf("the cgroup is charged for the process's memory: %s", line)
	}
	if err := c.Update(t.Context(), &anypb.Any{Value: []byte(fmt.Sprintf(`{"memory":{"limit":%d}}`, 64<<20))}); err != nil {
		t.Error(err)
	}
	if limit, _ := memoryOf(t, c.PID()); limit != fmt.Sprint(64<<20) {
		t.Errorf("after an update the container's process has a limit of %s", limit)
	}
	other, err := p.Create(t.Context(), p.inCgroup("c1", parent, 48<<20), ignore)
	if err != nil {
		t.Fatal(err)
	}
	p.start(initOf(t, other))
	_, otherDir := memoryOf(t, other.PID())
	p.exits("c1", "", 0)
	statusOf(t, initOf(t, other))
	if _, err := os.Stat(otherDir); err == nil {
		t.Errorf("%s is left when the container has ended", otherDir)
	}
	p.exits(sandboxID, "", 0)
	statusOf(t, initOf(t, c))
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left when the container has ended", dir)
	}
}

// Recover removes the containers' cgroups of a killed shim.
func TestRecoverRemovesContainersCgroups(t *testing.T) {
	parent, host := cgroupParent(t), newHost(t)
	cgroup, err := hostcgroup.NewContainer("", parent+"/c1")
	if err == nil {
		err = cgroup.Make()
	}
	if err != nil {
		t.Fatal(err)
	}
	store, err := persist.Create(host.Platform().StateDir(), persist.Owner{}, sandboxID)
	if err == nil {
		err = store.Update(func(r *persist.Record) { r.StandInCgroups = map[string]string{"c1": cgroup.Dir()} })
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := virtcontainers.Recover(host.Platform(), sandboxID, sandboxID, patience); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(cgroup.Dir()); err == nil {
		t.Errorf("%s is left", cgroup.Dir())
	}
}
