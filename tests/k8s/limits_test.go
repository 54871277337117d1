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

// A pod's own limit holds for its containers together: the one that exceeds it is
// killed, and the other goes on. Each alone stays below.
func TestLimitOfThePodItself(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("own-limit", `
			restartPolicy: Never
			resources: {limits: {memory: 128Mi, cpu: "1"}}
			containers:
			- {name: first, image: $BUSYBOX, command: [sh, -c, "dd if=/dev/zero bs=50M count=1 | sleep 1000"]}
			- {name: hog, image: $BUSYBOX, command: [sh, -c, "sleep 10; exec tail -c 100m /dev/zero"]}`)
		s.until("the hog's end", "137 OOMKilled", func() string { return s.ended(pod, "hog") })
		if s.get(pod, ".status.containerStatuses[?(@.name=='first')].state.running") == "" {
			s.Error("the other container does not run")
		}
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

// With enough overhead, a pod with limits is charged for its machine, which has
// less memory than default_memory; so a container that uses too much is killed
// alone.
func TestPodIsChargedForItsMachine(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		const defaultMemory = 2048
		s.configure("90-memory.toml", fmt.Sprintf("[hypervisor.qemu]\ndefault_memory = %d\n", defaultMemory))
		s.apply(roomyClass)
		s.runtime = "kata-roomy"
		pod := s.pod("charged", `
			restartPolicy: Never
			containers:
			- {name: other, image: $BUSYBOX, command: [sleep, "1000"], resources: {limits: {memory: 32Mi, cpu: 250m}}}
			- {name: hog, image: $BUSYBOX, command: [sh, -c, "sleep 15; tail -c 300m /dev/zero"], resources: {limits: {memory: 128Mi, cpu: 500m}}}`)
		s.ready(pod)
		s.same("the pod's memory", s.podLimit(pod, "memory", "memory.limit_in_bytes", "memory.max"), fmt.Sprint(160+1664))
		machine := s.machine(pod)
		if size := machineMiB(s, machine); size >= defaultMemory {
			s.Errorf("the machine has %d MiB, want less than default_memory, %d", size, defaultMemory)
		}
		if at, uid := memoryCgroup(s, machine), s.get(pod, ".metadata.uid"); !strings.Contains(at, "pod"+uid) {
			s.Errorf("the machine's memory is charged to %q, want the cgroup of pod %s", at, uid)
		}
		s.until("the hog's end", "137 OOMKilled", func() string { return s.ended(pod, "hog") })
		if s.get(pod, ".status.containerStatuses[?(@.name=='other')].state.running") == "" {
			s.Error("the other container does not run")
		}
	})
}

// machineMiB returns the memory that a QEMU was started with.
func machineMiB(s *stage, pid int) int {
	s.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		s.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(line), "\x00-m\x00")
	size, _, _ := strings.Cut(rest, "M,")
	mib, err := strconv.Atoi(size)
	if err != nil {
		s.Fatalf("the memory of %q: %v", line, err)
	}
	return mib
}

// memoryCgroup returns the cgroup to which a process's memory is charged; "" if
// there is none.
func memoryCgroup(s *stage, pid int) string {
	s.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		s.Fatal(err)
	}
	unified := ""
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(fields) != 3:
		case fields[1] == "memory":
			return fields[2]
		case fields[1] == "":
			unified = fields[2]
		}
	}
	return unified
}
