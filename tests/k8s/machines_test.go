package k8s

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sandbox returns the id of a pod's sandbox.
func (s *stage) sandbox(pod string) string {
	s.Helper()
	uid := s.get(pod, ".metadata.uid")
	return s.ctr("containers", "ls", "-q", "labels.\"io.kubernetes.pod.uid\"=="+uid+",labels.\"io.cri-containerd.kind\"==sandbox")
}

// machine returns the process id of a pod's QEMU.
func (s *stage) machine(pod string) int {
	s.Helper()
	return s.process("qemu-system", s.idOf(pod))
}

// shim returns the process id of a pod's shim, with either runtime.
func (s *stage) shim(pod string) int {
	s.Helper()
	return s.process("containerd-shim", s.idOf(pod))
}

// idOf returns the start of a pod's sandbox id, as it is in command lines.
func (s *stage) idOf(pod string) string {
	s.Helper()
	ids := s.sandbox(pod)
	if len(ids) != 64 {
		s.Fatalf("the sandbox of pod %s: %q, want one id", pod, ids)
	}
	return ids[:32]
}

// childOf returns the id of the only child of a process that has that name.
func (s *stage) childOf(parent int, name string) int {
	s.Helper()
	statuses, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		s.Fatal(err)
	}
	var found []int
	for _, path := range statuses {
		text, _ := os.ReadFile(path) // it may have ended
		if !strings.HasPrefix(string(text), "Name:\t"+name+"\n") || !strings.Contains(string(text), fmt.Sprintf("\nPPid:\t%d\n", parent)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			found = append(found, pid)
		}
	}
	if len(found) != 1 {
		s.Fatalf("children of process %d named %s: %v, want one", parent, name, found)
	}
	return found[0]
}

// process returns the id of the only process whose command line has both words.
func (s *stage) process(program, word string) int {
	s.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.Fatal(err)
	}
	var found []int
	for _, path := range lines {
		line, _ := os.ReadFile(path) // it may have ended
		name, _, _ := strings.Cut(string(line), "\x00")
		if !strings.Contains(filepath.Base(name), program) || !strings.Contains(string(line), word) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			found = append(found, pid)
		}
	}
	if len(found) != 1 {
		s.Fatalf("processes of %s with %s: %v, want one", program, word, found)
	}
	return found[0]
}
