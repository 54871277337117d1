package oci

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/persist"
)

// The engine learns of a machine's death whenever it happens: the process whose
// pid it knows exits, a start fails or has already succeeded, and the container
// is stopped and can be deleted.
func TestMachineDies(t *testing.T) {
	for name, kill := range map[string]func(*dying){
		"before the start": func(d *dying) {
			d.kill()
			d.ends()
			if res := d.call("start", d.id); res.code == 0 {
				t.Errorf("start after the end: %+v", res)
			}
		},
		"before the start, which does not wait": func(d *dying) {
			d.kill()
			_ = d.call("start", d.id) // it may have been in time
			d.ends()
		},
		"with the start": func(d *dying) {
			go func() {
				time.Sleep(50 * time.Millisecond) // about as long as kata-runtime takes to begin
				d.kill()
			}()
			_ = d.call("start", d.id)
			d.ends()
		},
		"after the start": func(d *dying) {
			if res := d.call("start", d.id); res.code != 0 {
				t.Errorf("start: %+v", res)
			}
			d.kill()
			d.ends()
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDying(t)
			kill(d)
			if s := d.state(d.id); s.Status != "stopped" {
				t.Errorf("state %+v", s)
			}
			if res := d.call("delete", d.id); res.code != 0 {
				t.Errorf("delete: %+v", res)
			}
		})
	}
}

// dying is a created container whose machine will be killed.
type dying struct {
	*runtime
	id      string
	monitor int
	machine persist.Process
}

// newDying makes a container with a CPU quota, as docker run --cpus does: its
// monitor is in the throttled cgroup.
func newDying(t *testing.T) *dying {
	t.Helper()
	d := &dying{runtime: newRuntime(t, suite.kata), id: "dying"}
	bundle := d.bundle("exec sleep 1000", func(s *specs.Spec) {
		quota, period := int64(50_000), uint64(100_000)
		s.Linux.CgroupsPath = "/kboci-dying/dying"
		s.Linux.Resources.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
	})
	t.Cleanup(func() {
		dirs, _ := filepath.Glob("/sys/fs/cgroup/*/kboci-dying")
		for _, dir := range append(dirs, "/sys/fs/cgroup/kboci-dying") {
			_ = unix.Rmdir(dir) // the engine, here the test, removes it
		}
	})
	pidFile := filepath.Join(t.TempDir(), "pid")
	if res := d.call("create", "--bundle", bundle, "--pid-file", pidFile, d.id); res.code != 0 {
		t.Fatalf("create: %+v", res)
	}
	d.monitor = d.pid(pidFile)
	d.machine = d.record().VM
	return d
}

// record returns the shim's record of the pod.
func (d *dying) record() (rec persist.Record) {
	d.t.Helper()
	found, err := filepath.Glob("/run/kata-containers/sandboxes/" + d.id + "-*/state.json")
	for _, name := range found {
		data, readErr := os.ReadFile(name)
		if err = readErr; err == nil {
			err = json.Unmarshal(data, &rec)
		}
		if err == nil && rec.Owner.Address == d.root {
			return rec
		}
	}
	d.t.Fatalf("the pod's record is not among %v: %v", found, err)
	return rec
}

func (d *dying) kill() {
	if err := unix.Kill(d.machine.PID, unix.SIGKILL); err != nil {
		d.t.Errorf("kill the machine: %v", err)
	}
}

// ends waits for the process whose pid the engine knows, and checks its exit
// code.
func (d *dying) ends() {
	d.t.Helper()
	if code := reap(d.t, d.monitor); code == 0 {
		d.t.Errorf("exit code %d of a container that lost its machine", code)
	}
}
