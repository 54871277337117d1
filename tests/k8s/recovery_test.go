package k8s

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/k8s/node"
)

// countingPod has two containers; the first counts in its log.
const countingPod = `
	containers:
	- {name: a, image: $BUSYBOX, command: [sh, -c, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.2; done"]}
	- name: b
	  image: $BUSYBOX
	  command: [sleep, "1000"]`

// privilegedCountingPod is the same with a second container that may do to the
// guest what it likes.
const privilegedCountingPod = countingPod + `
	  securityContext: {privileged: true}`

// Pods run through the death of the kubelet and of containerd: the same
// containers go on, their logs too, and commands work.
func TestServicesAreKilled(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		pods := []string{s.pod("through", countingPod)}
		s.runtime = runc
		pods = append(pods, s.pod("through", countingPod))
		for _, pod := range pods {
			s.ready(pod)
		}
		for _, service := range []string{node.Kubelet, node.Containerd, node.APIServer} {
			before := map[string]string{}
			for _, pod := range pods {
				before[pod] = s.containers(pod)
			}
			if err := s.node.Kill(s.ctx, service); err != nil {
				s.Fatal(err)
			}
			for _, pod := range pods {
				s.goesOn(service, pod)
				s.same("containers of "+pod+" after the kill of "+service, s.containers(pod), before[pod])
			}
		}
	})
}

// containers returns the ids and restarts of a pod's containers.
func (s *stage) containers(pod string) string {
	s.Helper()
	return s.get(pod, ".status.containerStatuses[*]['containerID','restartCount']")
}

// goesOn waits until a pod's log grows and commands work in it.
func (s *stage) goesOn(after, pod string) {
	s.Helper()
	s.until("exec after the kill of "+after, "ok\n", func() string {
		r := s.kubectl("exec", pod, "-c", "b", "--", "echo", "ok")
		return r.Out + r.Errors
	})
	mark := 0
	s.until("the log of "+pod, "grows", func() string {
		r := s.kubectl("logs", pod, "-c", "a", "--tail=1")
		n, err := strconv.Atoi(strings.TrimSpace(r.Out))
		switch {
		case r.Code != 0 || err != nil:
			return r.Out + r.Errors
		case mark != 0 && n > mark:
			return "grows"
		case mark == 0:
			mark = n
		}
		return "the same"
	})
}

// victim is a part of a pod whose loss ends the pod's containers.
type victim struct {
	name string
	// alone says that runc has no such part.
	alone bool
	// pod is the pod's specification.
	pod string
	// prepare is called before the pod is made, unless it is nil.
	prepare func(*stage)
	lose    func(*stage, string)
}

var victims = []victim{
	{name: "shim", pod: countingPod, lose: func(s *stage, pod string) { s.kill(s.shim(pod)) }},
	{name: "machine", pod: countingPod, lose: (*stage).killMachine},
	{name: "virtiofsd", alone: true, pod: countingPod, prepare: (*stage).useVirtiofsd, lose: (*stage).killVirtiofsd},
	{name: "guest", alone: true, pod: privilegedCountingPod, lose: (*stage).panicGuest},
}

// A pod whose machine or shim is killed comes back, in the same place. So does one
// that loses the daemon that serves its files, or whose guest panics.
func TestPodsComeBack(t *testing.T) {
	for _, v := range victims {
		t.Run(v.name, func(t *testing.T) {
			runtimes := []string{runc, kata}
			if v.alone {
				runtimes = []string{kata}
			}
			on(t, runtimes, v.comesBack)
		})
	}
}

// comesBack starts a pod, takes its part, and waits until all containers run again.
func (v victim) comesBack(s *stage) {
	if v.prepare != nil {
		v.prepare(s)
	}
	began := time.Now()
	pod := s.pod("back-"+v.name, v.pod)
	s.ready(pod)
	first := time.Since(began)
	before := s.containers(pod)
	began = time.Now()
	v.lose(s, pod)
	s.until("restarts of "+pod, "restarted, True", func() string {
		return s.restarted(pod) + ", " + s.get(pod, ".status.conditions[?(@.type=='Ready')].status")
	})
	if took := time.Since(began); took > 3*first+20*time.Second {
		s.Errorf("back after %v; the first start took %v", took, first)
	}
	s.Logf("%s: %s: back after %.1f s; the first start took %.1f s", s.runtime, v.name, time.Since(began).Seconds(), first.Seconds())
	if s.containers(pod) == before {
		s.Error("the containers are the same")
	}
	s.goesOn(v.name, pod)
}

// restarted reports how many of a pod's two containers have been started again,
// in words. The kubelet may do so more than once: it may see the end of a container
// before that of the pod.
func (s *stage) restarted(pod string) string {
	s.Helper()
	counts := s.get(pod, ".status.containerStatuses[*].restartCount")
	if fields := strings.Fields(counts); len(fields) != 2 || slices.Contains(fields, "0") {
		return "restarts " + counts
	}
	return "restarted"
}

// killMachine kills a pod's QEMU; with runc all its processes, the sandbox's
// first, which has the same meaning.
func (s *stage) killMachine(pod string) {
	s.Helper()
	if s.runtime != runc {
		s.kill(s.machine(pod))
		return
	}
	pids := map[string]string{} // by id
	for line := range strings.Lines(s.ctr("tasks", "ls")) {
		if fields := strings.Fields(line); len(fields) > 1 {
			pids[fields[0]] = fields[1]
		}
	}
	ids := s.ctr("containers", "ls", "-q", "labels.\"io.kubernetes.pod.uid\"=="+s.get(pod, ".metadata.uid"))
	for id := range strings.FieldsSeq(s.sandbox(pod) + " " + ids) {
		if pid, err := strconv.Atoi(pids[id]); err == nil {
			_ = unix.Kill(pid, unix.SIGKILL) // the sandbox is in both lists
		}
	}
}

// useVirtiofsd has pods' files served by an external daemon until the case ends.
func (s *stage) useVirtiofsd() {
	s.Helper()
	for _, path := range []string{harness.DefaultVirtiofsd, "/usr/libexec/virtiofsd"} {
		if _, err := os.Stat(path); err == nil {
			s.configure("91-virtiofsd.toml", fmt.Sprintf("[hypervisor.qemu]\nvirtio_fs_daemon = %q\n", path))
			return
		}
	}
	s.Skip("no virtiofsd: run tests/tools/virtiofsd.sh")
}

func (s *stage) killVirtiofsd(pod string) {
	s.Helper()
	s.kill(s.childOf(s.shim(pod), "virtiofsd"))
}

// panicGuest has the guest's kernel panic. The command makes sure that the kernel
// is not this machine's, whose boot has another id.
func (s *stage) panicGuest(pod string) {
	s.Helper()
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(id) == 0 {
		s.Fatalf("this machine's boot id: %q, %v", id, err)
	}
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	// How the command ends says nothing: its guest is gone.
	s.node.Kubectl(ctx, "", "exec", pod, "-c", "b", "--", "sh", "-c",
		"id=$(cat /proc/sys/kernel/random/boot_id) && [ -n \"$id\" ] && [ \"$id\" != "+strings.TrimSpace(string(id))+" ] && echo c >/proc/sysrq-trigger")
}

func (s *stage) kill(pid int) {
	s.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		s.Fatalf("kill process %d: %v", pid, err)
	}
}

// A drain ends the node's pods, and the node takes pods again afterwards.
func TestDrain(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		for _, runtime := range []string{kata, runc} {
			s.runtime = runtime
			s.ready(s.pod("drained", countingPod))
		}
		defer func() { s.node.Kubectl(context.WithoutCancel(s.ctx), "", "uncordon", node.Name) }()
		s.must("drain", node.Name, "--force", "--pod-selector=case=drained", "--timeout=120s")
		s.same("pods after the drain", s.must("get", "pods", "-l", "case=drained", "-o", "name"), "")
		s.must("uncordon", node.Name)
		for _, runtime := range []string{kata, runc} {
			s.runtime = runtime
			s.ready(s.pod("after", countingPod))
		}
	})
}
