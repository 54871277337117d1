package hostile

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// envFloodTime is how long each flood lasts at least, as a Go duration. With
// "whole", the floods that have an end run to it.
const envFloodTime = "KATABOX_FLOOD_TIME"

// floodTime returns the duration of a flood, and whether it runs to its end.
func floodTime(t *testing.T) (least time.Duration, whole bool) {
	t.Helper()
	const short, long = 5 * time.Second, 30 * time.Second
	switch text := os.Getenv(envFloodTime); text {
	case "":
		return short, false
	case "whole":
		return long, true
	default:
		least, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("%s: %v, want a duration or \"whole\"", envFloodTime, err)
		}
		return least, false
	}
}

// latencies are the durations of a neighbour's execs.
type latencies []time.Duration

// sample adds the duration of one exec.
func (l *latencies) sample(works func()) {
	begin := time.Now()
	works()
	*l = append(*l, time.Since(begin))
}

func (l latencies) String() string {
	if len(l) == 0 {
		return "no exec"
	}
	sorted := slices.Sorted(slices.Values(l))
	return fmt.Sprintf("%.2f s, at most %.2f s (%d execs)", sorted[len(sorted)/2].Seconds(), sorted[len(sorted)-1].Seconds(), len(sorted))
}

// atRest samples a neighbour's execs before there is another pod.
func atRest(works func()) latencies {
	var l latencies
	for range 5 {
		l.sample(works)
	}
	return l
}

// maxQEMU bounds a QEMU's peak memory in MiB: the guest's, and what TCG may
// translate (docs/ci.md).
const maxQEMU = guestMiB + 1280

// guestMiB is the guest's memory. The file server's part of it is mapped in the
// shim, and counts as the shim's when it was used.
const guestMiB = 256

// measured is a flood as it is seen from the host.
type measured struct {
	before, beside latencies
	logMark        int64
	// anon is the most anonymous memory of the shim that was seen, in MiB, and
	// goroutines how many it had at most.
	anon, goroutines int
}

// maxGoroutines bounds a shim's goroutines, whatever its guest and containers
// do: twice what was seen.
const maxGoroutines = 128

// sample measures the neighbour's exec and the shim's memory and goroutines,
// beside the flood.
func (m *measured) sample(t *testing.T, p *pod, works func()) {
	t.Helper()
	m.beside.sample(works)
	m.anon = max(m.anon, memoryMiB(t, p.shim, "RssAnon:"))
	m.goroutines = max(m.goroutines, p.goroutines())
}

// goroutines returns how many the shim has, by its profile.
func (p *pod) goroutines() int {
	p.t.Helper()
	socket := filepath.Join("/run/kata-containers/sandboxes", p.daemon.HostName(p.Sandbox.Box.ID()), "shim-monitor.sock")
	client := &http.Client{Timeout: answerTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	answer, err := client.Get("http://shim/debug/pprof/goroutine?debug=1")
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	if err != nil {
		p.t.Fatalf("read the goroutines: %v", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "goroutine profile: total ")))
	if err != nil {
		p.t.Fatalf("count the goroutines: %v", err)
	}
	return n
}

// check fails the test if the flood went beyond a bound, and prints a row.
func (m *measured) check(t *testing.T, p *pod, done int) {
	t.Helper()
	vmm, err := p.daemon.One(harness.KindVMM)
	if err != nil {
		t.Fatal(err)
	}
	shim, qemu := peakMiB(t, p.shim), peakMiB(t, vmm.PID)
	size := p.daemon.LogSize() - m.logMark
	if m.anon > maxShim || shim > maxShim+guestMiB {
		t.Errorf("the shim needed %d MiB, %d anonymous, want at most %d, %d", shim, m.anon, maxShim+guestMiB, maxShim)
	}
	if m.goroutines > maxGoroutines {
		t.Errorf("the shim had %d goroutines, want at most %d", m.goroutines, maxGoroutines)
	}
	if qemu > maxQEMU {
		t.Errorf("QEMU needed %d MiB, want at most %d", qemu, maxQEMU)
	}
	if size > maxLog {
		t.Errorf("the log grew by %d KiB, want at most %d", size>>10, maxLog>>10)
	}
	t.Logf("FLOOD %s: done %d times; shim %d MiB (anonymous %d), %d goroutines, QEMU %d MiB, log %d KiB; neighbour's exec %v; before %v",
		t.Name(), done, shim, m.anon, m.goroutines, qemu, size>>10, m.beside, m.before)
}

// peakMiB returns the most memory that a process ever had, in MiB.
func peakMiB(t *testing.T, pid int) int {
	t.Helper()
	return memoryMiB(t, pid, "VmHWM:")
}

// memoryMiB returns a line of a process's status (proc(5)) that is in kB, in MiB.
func memoryMiB(t *testing.T, pid int, name string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		value, ok := strings.CutPrefix(line, name)
		if !ok {
			continue
		}
		kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		if err != nil {
			t.Fatalf("%s of process %d: %v", name, pid, err)
		}
		return kib >> 10
	}
	t.Fatalf("no %s in %s", name, status)
	return 0
}
