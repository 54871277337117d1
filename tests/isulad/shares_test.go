package isulad

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/isulad/engine"
)

// leastShares is what Kubernetes gives a pause container.
const leastShares = 2

// CRI's pause container without a cgroup_parent has its own cgroup below
// /isulad and the least shares. That does not starve the machine, in which the
// pod's other containers run.
func TestSharesOfThePauseContainer(t *testing.T) {
	ctx := testContext(t)
	cfg := seedPod()
	cfg.Annotations = map[string]string{"io.kubernetes.cri.container-type": "sandbox"}
	cfg.CPUShares = leastShares
	pod := start(ctx, t, cfg, engine.Detached)
	alone := sharesOf(t, processesOf(pod.ID)[qemuName])
	for place, shares := range alone {
		if shares < 1024 {
			t.Errorf("beside the pause container alone, threads of the machine in %s have %d shares, want 1024", place, shares)
		}
	}
	web := app(pod.ID, "sleep", "1000")
	web.Annotations = map[string]string{"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": pod.ID}
	web.CPUShares = 4096
	worker := start(ctx, t, web, engine.Detached)
	found := false
	beside := sharesOf(t, processesOf(pod.ID)[qemuName])
	for _, shares := range beside {
		found = found || shares >= 4096
	}
	if !found {
		t.Errorf("beside a container of 4096 shares the machine has %v", beside)
	}
	if err := worker.Kill(ctx, 9); err != nil {
		t.Fatal(err)
	}
	wantExit(ctx, t, worker, 137)
	if err := pod.Stop(ctx, testTimeout); err != nil {
		t.Fatal(err)
	}
	wantExit(ctx, t, pod, 0)
}

// sharesOf returns the CPU shares of the cgroups of a process's threads, by
// path. A weight of cgroup v2 is converted to shares.
func sharesOf(t *testing.T, pid int) map[string]int {
	t.Helper()
	tables, err := filepath.Glob(procPath(pid, "task", "*", "cgroup"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("threads of process %d: %d, %v", pid, len(tables), err)
	}
	shares := map[string]int{}
	for _, table := range tables {
		data, err := os.ReadFile(table)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(data)) {
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // cgroups(7)
			for _, file := range cpuFiles(fields[1], fields[2]) {
				if n, err := readNumber(file); err == nil && strings.HasSuffix(file, "weight") {
					shares[fields[2]] = n * 1024 / 100
				} else if err == nil {
					shares[fields[2]] = n
				}
			}
		}
	}
	if len(shares) == 0 {
		t.Fatalf("no cgroup of process %d says a number", pid)
	}
	return shares
}

// cpuFiles returns the files that may hold a cgroup's shares or weight.
func cpuFiles(controllers, path string) []string {
	if controllers == "" {
		return []string{filepath.Join("/sys/fs/cgroup", path, "cpu.weight")}
	}
	var files []string
	for name := range strings.SplitSeq(controllers, ",") {
		if name == "cpu" {
			files = append(files, filepath.Join("/sys/fs/cgroup", controllers, path, "cpu.shares"), filepath.Join("/sys/fs/cgroup/cpu", path, "cpu.shares"))
		}
	}
	return files
}

func readNumber(file string) (int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read shares: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}
