package k8s

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// crowdSize is the number of pods that start at once.
const crowdSize = 20

// requireMemory skips a test on a machine on which Kubernetes would not admit so
// many pods: each takes the overhead of its RuntimeClass.
func requireMemory(t *testing.T) {
	t.Helper()
	const wantMiB = crowdSize*640 + 1024
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	if have := info.Totalram * uint64(info.Unit) >> 20; have < wantMiB {
		t.Skipf("%d pods need a machine of %d MiB, this one has %d", crowdSize, wantMiB, have)
	}
}

// Many pods at once all run, and all end.
func TestManyPodsAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("twenty machines")
	}
	requireMemory(t)
	for _, runtime := range []string{runc, kata} {
		on(t, []string{runtime}, func(s *stage) {
			var all strings.Builder
			for i := range crowdSize {
				name := fmt.Sprintf("crowd-%d-%s", i, runtime)
				s.pods = append(s.pods, name)
				fmt.Fprintf(&all, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {crowd: %s}}\nspec:\n  runtimeClassName: %[2]s\n"+
					"  terminationGracePeriodSeconds: 1\n  containers:\n"+
					"  - {name: a, image: $BUSYBOX, command: [sleep, '1000']}\n  - {name: b, image: $BUSYBOX, command: [sleep, '1000']}\n---\n", name, runtime)
			}
			began := time.Now()
			s.apply(all.String())
			s.must("wait", "--for=condition=Ready", "pod", "-l", "crowd="+runtime, "--timeout=270s")
			s.Logf("%s: %d pods of 2 containers run after %.1f s", runtime, crowdSize, time.Since(began).Seconds())
			s.same("restarts", strings.Trim(s.must("get", "pod", "-l", "crowd="+runtime, "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}"), "0 "), "")
			began = time.Now()
			s.clear()
			s.Logf("%s: removed after %.1f s", runtime, time.Since(began).Seconds())
		})
	}
}
