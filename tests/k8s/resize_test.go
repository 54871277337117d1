package k8s

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// memoryMax reads a container's memory limit in it.
const memoryMax = "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes"

// cpuMax reads its CPU limit, in microseconds of 100 ms.
const cpuMax = "cut -d ' ' -f 1 /sys/fs/cgroup/cpu.max 2>/dev/null || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us"

// A running container gets other limits, and one that asks for it is started again
// with them.
func TestResize(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("resize", `
			containers:
			- {name: a, image: $BUSYBOX, command: [sleep, "1000"], resources: {requests: {cpu: 100m}, limits: {memory: 64Mi, cpu: 500m}}}
			- name: b
			  image: $BUSYBOX
			  command: [sleep, "1000"]
			  resources: {requests: {cpu: 100m}, limits: {memory: 64Mi, cpu: 500m}}
			  resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]`)
		s.ready(pod)
		limits := func(container string) string {
			r := s.kubectl("exec", pod, "-c", container, "--", "sh", "-c", memoryMax+"; "+cpuMax)
			fields := strings.Fields(r.Out)
			if len(fields) != 2 {
				return r.Out + r.Errors
			}
			return mib(fields[0]) + " " + fields[1]
		}
		for _, step := range []struct{ memory, cpu, want string }{{"192Mi", "1500m", "192 150000"}, {"96Mi", "250m", "96 25000"}} {
			for _, container := range []string{"a", "b"} {
				s.must("patch", "pod", pod, "--subresource", "resize", "-p", fmt.Sprintf(
					`{"spec": {"containers": [{"name": %q, "resources": {"limits": {"memory": %q, "cpu": %q}, "requests": {"memory": %[2]q}}}]}}`, container, step.memory, step.cpu))
			}
			for _, container := range []string{"a", "b"} {
				s.until(container+" resized", step.want, func() string { return limits(container) })
				s.until(container+" as the kubelet sees it", step.memory+" "+step.cpu, func() string {
					return s.get(pod, ".status.containerStatuses[?(@.name=='"+container+"')].resources.limits['memory','cpu']")
				})
			}
		}
		s.same("restarts", s.get(pod, ".status.containerStatuses[*].restartCount"), "0 2")
	})
}

// A limit of the pod itself holds for its containers without one, and counts once
// in the size of its machine.
func TestPodLevelLimits(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("podlevel", `
			resources: {limits: {memory: 512Mi, cpu: "1"}, requests: {memory: 64Mi, cpu: 100m}}
			containers:
			- {name: a, image: $BUSYBOX, command: [sleep, "1000"]}
			- {name: b, image: $BUSYBOX, command: [sleep, "1000"]}`)
		s.ready(pod)
		for _, container := range []string{"a", "b"} {
			s.same("memory of "+container, mib(s.must("exec", pod, "-c", container, "--", "sh", "-c", memoryMax)), "512")
		}
		if s.runtime == kata {
			total, err := strconv.Atoi(s.sh(pod, `awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo`))
			if most := machineMiB(s, s.machine(pod)) + 512; err != nil || total > most {
				s.Errorf("the guest has %d MiB, want at most %d (%v)", total, most, err)
			}
			s.same("the guest's CPUs", s.sh(pod, "nproc"), "2")
		}
	})
}

// A limit of the pod itself is changed, and none of its containers: the new one holds
// for them together.
func TestPodLevelResize(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("podresize", `
			resources: {limits: {memory: 256Mi, cpu: "1"}, requests: {memory: 64Mi, cpu: 100m}}
			containers:
			- name: a
			  image: $BUSYBOX
			  command: [sleep, "1000"]
			  resources: {limits: {memory: 120Mi}, requests: {memory: 16Mi}}
			- name: b
			  image: $BUSYBOX
			  command: [sh, -c, "dd if=/dev/zero bs=50M count=1 | sleep 1000"]
			  resources: {limits: {memory: 120Mi}, requests: {memory: 16Mi}}`)
		s.ready(pod)
		const use = "head -c 100m /dev/zero | tail -c 100m >/dev/null; echo $?"
		s.same("the end of a program that uses less than both limits", s.sh(pod, use), "0")
		s.must("patch", "pod", pod, "--subresource", "resize", "-p", `{"spec": {"resources": {"limits": {"memory": "128Mi"}}}}`)
		s.until("its end with a lower limit of the pod", "137", func() string { return s.sh(pod, use) })
		s.same("restarts", s.get(pod, ".status.containerStatuses[*].restartCount"), "0 0")
	})
}
