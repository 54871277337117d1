package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// staticManagers has the kubelet give whole CPUs to containers of Guaranteed pods. One
// CPU of the node stays for the others.
const staticManagers = `cpuManagerPolicy: static
memoryManagerPolicy: Static
kubeReserved: {cpu: 100m, memory: 100Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]
`

// A container that has a CPU for itself runs on that CPU, without a quota. With
// Katabox its machine's vCPUs do, and it sees these.
func TestStaticCPUs(t *testing.T) {
	if err := bed.node.SetKubelet(t.Context(), staticManagers); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bed.node.SetKubelet(context.WithoutCancel(t.Context()), ""); err != nil {
			t.Error(err)
		}
	}()
	for _, runtime := range []string{runc, kata} { // one after the other: the node may have one CPU to give
		on(t, []string{runtime}, staticCPUs)
	}
}

func staticCPUs(s *stage) {
	pod := s.pod("static", `containers: [{name: c, image: $BUSYBOX, command: [sleep, "1000"], resources: {limits: {memory: 64Mi, cpu: "1"}}}]`)
	s.ready(pod)
	if quota := s.sh(pod, cpuMax); quota != "max" && quota != "-1" {
		s.Errorf("its quota is %s, want none", quota)
	}
	const allowed = "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status; nproc"
	own := s.ownCPUs(pod)
	if s.runtime == runc {
		s.same("its CPUs", s.sh(pod, allowed), own+"\n1")
		return
	}
	s.same("its CPUs", s.sh(pod, allowed), "0-1\n2")
	for _, thread := range s.vcpuThreads(pod) {
		s.same("the CPUs of "+thread, s.program("sed", "-n", `s/^Cpus_allowed_list:[[:space:]]*//p`, thread), own)
	}
}

// ownCPUs returns the CPUs that the kubelet has given to the only container of a pod.
func (s *stage) ownCPUs(pod string) string {
	s.Helper()
	text, err := os.ReadFile("/var/lib/kubelet/cpu_manager_state")
	if err != nil {
		s.Fatal(err)
	}
	var state struct {
		Entries map[string]map[string]string
	}
	if err := json.Unmarshal(text, &state); err != nil {
		s.Fatal(err)
	}
	cpus := state.Entries[s.get(pod, ".metadata.uid")]["c"]
	if cpus == "" {
		s.Fatalf("the kubelet has given the container no CPU: %s", text)
	}
	return cpus
}

// vcpuThreads lists the status files of the threads of a pod's machine that run its
// vCPUs, by QEMU's names for them ("CPU 0/KVM", "ALL CPUs/TCG").
func (s *stage) vcpuThreads(pod string) []string {
	s.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", s.machine(pod)))
	if err != nil {
		s.Fatal(err)
	}
	var threads []string
	for _, file := range files {
		if name, err := os.ReadFile(file); err == nil && strings.Contains(string(name), "CPU") {
			threads = append(threads, filepath.Join(filepath.Dir(file), "status"))
		}
	}
	if len(threads) == 0 {
		s.Fatalf("no thread of %s runs vCPUs", pod)
	}
	return threads
}
