package k8s

import (
	"strings"
	"testing"
)

// ended returns the exit code and the reason of a container's end.
func (s *stage) ended(pod, container string) string {
	s.Helper()
	return s.get(pod, ".status.containerStatuses[?(@.name=='"+container+"')].state.terminated['exitCode','reason']")
}

// Pods run to their ends: with which code, and what was printed.
func TestPodsEnd(t *testing.T) {
	both(t, func(s *stage) {
		done := s.pod("done", `
			restartPolicy: Never
			containers:
			- {name: first, image: $BUSYBOX, command: [sh, -c, "echo out; echo err >&2"]}
			- {name: second, image: $BUSYBOX, command: [sh, -c, "echo in the same pod as $(hostname)"]}`)
		failed := s.pod("failed", `
			restartPolicy: Never
			containers:
			- {name: good, image: $BUSYBOX, command: ["true"]}
			- {name: bad, image: $BUSYBOX, command: [sh, -c, "exit 42"]}
			- {name: missing, image: $BUSYBOX, command: [/no/such/program]}`)
		s.succeeded(done)
		s.same("first's end", s.ended(done, "first"), "0 Completed")
		lines := strings.Fields(s.must("logs", done, "-c", "first"))
		if len(lines) != 2 || lines[0] == lines[1] {
			s.Errorf("first's log: %q", lines)
		}
		s.same("second's log", s.must("logs", done, "-c", "second"), "in the same pod as "+done+"\n")

		s.wait(failed, "jsonpath={.status.phase}=Failed")
		s.same("good's end", s.ended(failed, "good"), "0 Completed")
		s.same("bad's end", s.ended(failed, "bad"), "42 Error")
		s.same("missing's end", s.ended(failed, "missing"), "128 StartError")
	})
}

// The kubelet starts a container again as the policy says.
func TestRestartPolicies(t *testing.T) {
	const count = `echo start >>/state/starts; [ $(wc -l </state/starts) -ge 2 ]`
	both(t, func(s *stage) {
		untilGood := s.pod("until-good", `
			restartPolicy: OnFailure
			volumes: [{name: state, emptyDir: {}}]
			containers:
			- {name: c, image: $BUSYBOX, command: [sh, -c, "`+count+`"], volumeMounts: [{name: state, mountPath: /state}]}`)
		always := s.pod("always", `
			volumes: [{name: state, emptyDir: {}}]
			containers:
			- {name: c, image: $BUSYBOX, command: [sh, -c, "`+count+` && sleep 1000"], volumeMounts: [{name: state, mountPath: /state}]}
			- {name: other, image: $BUSYBOX, command: [sleep, "1000"]}`)
		s.succeeded(untilGood)
		s.same("restarts until good", s.get(untilGood, ".status.containerStatuses[0].restartCount"), "1")
		s.same("end of the first try", s.get(untilGood, ".status.containerStatuses[0].lastState.terminated.exitCode"), "1")
		s.ready(always)
		s.until("restarts, always", "1 0", func() string {
			return s.get(always, ".status.containerStatuses[*].restartCount")
		})
	})
}

// Init containers run in their order, a sidecar beside the others until they
// have ended; hooks run in their container.
func TestInitSidecarAndHooks(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("order", `
			restartPolicy: Never
			volumes: [{name: log, emptyDir: {}}]
			initContainers:
			- {name: one, image: $BUSYBOX, command: [sh, -c, "echo one >>/log/order"], volumeMounts: [{name: log, mountPath: /log}]}
			- {name: two, image: $BUSYBOX, command: [sh, -c, "echo two >>/log/order"], volumeMounts: [{name: log, mountPath: /log}]}
			- name: sidecar
			  image: $BUSYBOX
			  restartPolicy: Always
			  command: [sh, -c, "echo sidecar >>/log/order; touch /up; exec sleep 1000"]
			  startupProbe: {exec: {command: [test, -e, /up]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 60}
			  volumeMounts: [{name: log, mountPath: /log}]
			containers:
			- name: main
			  image: $BUSYBOX
			  command: [sh, -c, "until grep -q hook /log/order; do sleep 0.1; done; echo main >>/log/order; tr '\\n' ' ' </log/order"]
			  lifecycle: {postStart: {exec: {command: [sh, -c, "echo hook >>/log/order"]}}}
			  volumeMounts: [{name: log, mountPath: /log}]`)
		s.succeeded(pod)
		s.same("order", s.must("logs", pod, "-c", "main"), "one two sidecar hook main ")
	})
}
