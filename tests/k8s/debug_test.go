package k8s

import (
	"strings"
	"testing"
)

// kubectl debug sees the processes of its target and no other's.
func TestDebugTarget(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("debugged", `
			containers:
			- {name: a, image: $BUSYBOX, command: [sleep, "4711"]}
			- {name: b, image: $BUSYBOX, command: [sleep, "4712"]}`)
		s.ready(pod)
		for _, target := range []struct{ name, sees, misses string }{
			{"a", "sleep 4711", "sleep 4712"}, {"b", "sleep 4712", "sleep 4711"},
		} {
			debugger := "debug-" + target.name
			s.must("debug", pod, "--image", s.expand("$BUSYBOX"), "--target", target.name, "--container", debugger, "--profile=general",
				"--", "sh", "-c", "ps -o pid,args; ls /proc/1/root/")
			s.until("the debugger's end", "0", func() string {
				return s.get(pod, ".status.ephemeralContainerStatuses[?(@.name=='"+debugger+"')].state.terminated.exitCode")
			})
			log := s.must("logs", pod, "-c", debugger)
			if !strings.Contains(log, target.sees) || strings.Contains(log, target.misses) {
				s.Errorf("debugger of %s sees:\n%s", target.name, log)
			}
		}
	})
}

// Containers of a pod with a shared process namespace see each other.
func TestSharedProcesses(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("shared", `
			shareProcessNamespace: true
			containers:
			- {name: a, image: $BUSYBOX, command: [sleep, "4711"]}
			- {name: b, image: $BUSYBOX, command: [sleep, "4712"]}`)
		s.ready(pod)
		if out := s.must("exec", pod, "-c", "a", "--", "ps", "-o", "args"); !strings.Contains(out, "sleep 4711") || !strings.Contains(out, "sleep 4712") {
			s.Errorf("a sees:\n%s", out)
		}
	})
}
