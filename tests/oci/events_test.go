package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

const (
	memoryLimit = 64 << 20
	pidsLimit   = 20
)

// The limits and counters that are reported of a running container are the same
// as with runc.
func TestEvents(t *testing.T) { sameAsRunc(t, playEvents) }

// playEvents notes the output of the commands that report on a container.
func playEvents(t *testing.T, program string) (rows []string) {
	t.Helper()
	r := newRuntime(t, program)
	limits := func(s *specs.Spec) {
		memory, pids := int64(memoryLimit), int64(pidsLimit)
		s.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &memory}
		s.Linux.Resources.Pids = &specs.LinuxPids{Limit: &pids}
	}
	bundle := r.bundle("sleep 1000 & echo ready; wait; exit", limits) // two processes before it is ready
	out, pidFile := create(t), filepath.Join(t.TempDir(), "pid")
	null := open(t, os.DevNull)
	if code := r.command([3]*os.File{null, out, out}, "create", "--bundle", bundle, "--pid-file", pidFile, "e1"); code != 0 {
		t.Fatalf("%s create: %d %s", program, code, content(t, out))
	}
	if res := r.call("start", "e1"); res.code != 0 {
		t.Fatalf("start: %+v", res)
	}
	awaitText(t, out, "ready")
	rows = append(rows, counters(t, r.call("events", "--stats", "e1")), processes(t, r))
	if res := r.call("kill", "e1", "KILL"); res.code != 0 {
		t.Errorf("kill: %+v", res)
	}
	rows = append(rows, fmt.Sprintf("exit: %d", reap(t, r.pid(pidFile))))
	ended := r.call("events", "--stats", "e1")
	rows = append(rows, fmt.Sprintf("events after the end: %d %q", ended.code, ended.out))
	if res := r.call("delete", "e1"); res.code != 0 {
		t.Errorf("delete: %+v", res)
	}
	return rows
}

// counters reports whether the numbers that differ from run to run are
// plausible.
func counters(t *testing.T, res result) string {
	t.Helper()
	var event struct {
		Type, ID string
		Data     struct {
			CPU struct {
				Usage struct{ Total uint64 }
			}
			Memory struct {
				Usage struct{ Limit, Usage uint64 }
			}
			Pids struct{ Current, Limit uint64 }
		}
	}
	if err := json.Unmarshal([]byte(res.out), &event); err != nil {
		t.Fatalf("events: %v: %+v", err, res)
	}
	memory := event.Data.Memory.Usage
	return fmt.Sprintf("%d: %s of %s, has used a CPU %v, memory of %d used %v, tasks %d of %d", res.code, event.Type, event.ID,
		event.Data.CPU.Usage.Total > 0, memory.Limit, memory.Usage > 0 && memory.Usage < memory.Limit, event.Data.Pids.Current, event.Data.Pids.Limit)
}

// processes says how many processes each format of ps lists.
func processes(t *testing.T, r *runtime) string {
	t.Helper()
	var pids []int
	list := r.call("ps", "--format", "json", "e1")
	if err := json.Unmarshal([]byte(list.out), &pids); err != nil {
		t.Fatalf("ps: %v: %+v", err, list)
	}
	table := r.call("ps", "e1")
	return fmt.Sprintf("ps: %d %d, a table of at least two lines %v", list.code, table.code, strings.Count(table.out, "\n") >= 2)
}
