package k8s

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A container that uses too much memory is killed, for that reason, and alone.
func TestOutOfMemory(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("oom", `
			restartPolicy: Never
			containers:
			- name: hog
			  image: $BUSYBOX
			  command: [sh, -c, "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done"]
			  resources: {limits: {memory: 48Mi, cpu: 500m}}
			- {name: other, image: $BUSYBOX, command: [sleep, "1000"], resources: {limits: {memory: 32Mi, cpu: 500m}}}`)
		s.until("the hog's end", "137 OOMKilled", func() string { return s.ended(pod, "hog") })
		if s.get(pod, ".status.containerStatuses[?(@.name=='other')].state.running") == "" {
			s.Error("the other container does not run")
		}
	})
}

// mib is what a memory limit is in MiB, or what was read.
func mib(text string) string {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return text
	}
	return fmt.Sprint(n >> 20)
}

// A container has its limits, and its pod theirs and the overhead of its
// RuntimeClass.
func TestLimitsAndOverhead(t *testing.T) {
	const read = "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes"
	overhead := map[string]int{runc: 0, kata: 640}
	both(t, func(s *stage) {
		pod := s.pod("limited", `
			containers:
			- {name: a, image: $BUSYBOX, command: [sleep, "1000"], resources: {limits: {memory: 64Mi, cpu: 500m}}}
			- {name: b, image: $BUSYBOX, command: [sleep, "1000"], resources: {limits: {memory: 32Mi, cpu: 250m}}}`)
		s.ready(pod)
		s.same("a's memory", mib(s.sh(pod, read)), "64")
		s.same("b's memory", mib(s.must("exec", pod, "-c", "b", "--", "sh", "-c", read)), "32")
		s.same("the pod's memory", s.podLimit(pod, "memory", "memory.limit_in_bytes", "memory.max"), fmt.Sprint(96+overhead[s.runtime]))
		s.same("the pod's class", s.get(pod, ".status.qosClass"), "Guaranteed")
	})
}

// podLimit reads a limit from the pod's cgroup on the node, by the file's names
// in versions 1 and 2.
func (s *stage) podLimit(pod, controller, first, second string) string {
	s.Helper()
	for _, pattern := range []string{
		"/sys/fs/cgroup/" + controller + cgroup() + "/kubepods/*%s/" + first, "/sys/fs/cgroup/" + controller + cgroup() + "/kubepods/*/*%s/" + first,
		"/sys/fs/cgroup" + cgroup() + "/kubepods/*%s/" + second, "/sys/fs/cgroup" + cgroup() + "/kubepods/*/*%s/" + second,
	} {
		paths, err := filepath.Glob(fmt.Sprintf(pattern, s.get(pod, ".metadata.uid")))
		if err != nil {
			s.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				s.Fatal(err)
			}
			return mib(string(text))
		}
	}
	s.Fatalf("the cgroup of pod %s is not there", pod)
	return ""
}

// roomyClass is a RuntimeClass with the overhead that docs/kubernetes.md states
// for nodes without KVM.
const roomyClass = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: kata-roomy}
handler: kata
overhead: {podFixed: {memory: 1664Mi}}
`

// With enough overhead, a pod with limits is charged for its machine, which
// starts with less than default_memory, and the limit holds.
func TestPodIsChargedForItsMachine(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		s.apply(roomyClass)
		s.runtime = "kata-roomy"
		pod := s.pod("charged", `
			containers:
			- {name: c, image: $BUSYBOX, command: [sleep, "1000"], resources: {limits: {memory: 128Mi, cpu: 500m}}}`)
		s.ready(pod)
		s.same("the pod's memory", s.podLimit(pod, "memory", "memory.limit_in_bytes", "memory.max"), fmt.Sprint(128+1664))
		uid := s.get(pod, ".metadata.uid")
		groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", s.machine(pod)))
		if err != nil {
			s.Fatal(err)
		}
		for line := range strings.Lines(string(groups)) {
			memory := strings.Contains(line, ":memory:") || strings.HasPrefix(line, "0::/"+strings.Trim(cgroup(), "/"))
			if memory && !strings.Contains(line, "pod"+uid) {
				s.Errorf("the machine's memory is charged to %s", line)
			}
		}
	})
}
