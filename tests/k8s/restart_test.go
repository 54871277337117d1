package k8s

import "testing"

// restarted is a pod with containers that are started again, or not, by their exit
// codes. Each counts its starts in a file.
const restarted = `
	restartPolicy: Never
	volumes: [{name: v, emptyDir: {}}]
	initContainers:
	- {name: init, image: $BUSYBOX, command: [sh, -c, "echo init >>/v/init"], volumeMounts: [{name: v, mountPath: /v}]}
	containers:
	- name: rule
	  image: $BUSYBOX
	  command: [sh, -c, "echo rule >>/v/rule; test $(wc -l </v/rule) = 1 && exit 42; test $(wc -l </v/rule) = 2 && exit 43; exit 7"]
	  restartPolicyRules:
	  - {action: Restart, exitCodes: {operator: In, values: [42]}}
	  - {action: RestartAllContainers, exitCodes: {operator: In, values: [43]}}
	  restartPolicy: Never
	  volumeMounts: [{name: v, mountPath: /v}]
	- name: other
	  image: $BUSYBOX
	  command: [sh, -c, "echo other >>/v/other; until test $(wc -l </v/rule) = 3; do sleep 0.2; done; cat /v/init /v/other"]
	  volumeMounts: [{name: v, mountPath: /v}]`

// A container's exit code decides whether it is started again, and whether all
// containers are: with those that have ended, and on the same volumes.
func TestRestartRules(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("restarted", restarted)
		s.wait(pod, "jsonpath={.status.phase}=Failed")
		s.same("exit codes", s.get(pod, ".status.containerStatuses[*].state.terminated.exitCode"), "0 7")
		s.same("what ran", s.must("logs", pod, "-c", "other"), "init\ninit\nother\nother\n")
	})
}

// A sidecar whose startup probe fails is started again, and the pod's containers wait
// for it. A pod that exceeds its deadline ends as its program decides.
func TestSidecarAndDeadline(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("sidecar", `
			activeDeadlineSeconds: 30
			terminationGracePeriodSeconds: 60
			restartPolicy: Never
			initContainers:
			- name: side
			  image: $BUSYBOX
			  command: [sh, -c, "trap 'exit 5' TERM; while :; do sleep 0.1; done"]
			  restartPolicy: Always
			  startupProbe: {exec: {command: ["false"]}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 2}
			containers: [{name: c, image: $BUSYBOX, command: [echo, never]}]`)
		s.until("the sidecar's earlier end", "5", func() string {
			return s.get(pod, ".status.initContainerStatuses[*].lastState.terminated.exitCode")
		})
		s.wait(pod, "jsonpath={.status.phase}=Failed")
		s.same("its reason", s.get(pod, ".status.reason"), "DeadlineExceeded")
		s.same("the container that waited", s.get(pod, ".status.containerStatuses[*].state.terminated.containerID"), "")
	})
}

// jobs are one that fails by its pod's exit code, and one of several pods, of which
// one is tried again.
const jobs = `
apiVersion: batch/v1
kind: Job
metadata: {name: fails-$RUNTIME}
spec:
  backoffLimit: 5
  podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {containerName: c, operator: In, values: [42]}}]}
  template:
    spec:
      runtimeClassName: $RUNTIME
      restartPolicy: Never
      containers: [{name: c, image: $BUSYBOX, command: [sh, -c, "exit 42"]}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: several-$RUNTIME}
spec:
  completions: 4
  completionMode: Indexed
  podFailurePolicy: {rules: [{action: Ignore, onExitCodes: {operator: In, values: [3]}}]}
  backoffLimit: 0
  ttlSecondsAfterFinished: 10
  template:
    spec:
      runtimeClassName: $RUNTIME
      restartPolicy: Never
      volumes: [{name: v, hostPath: {path: /run/katabox-k8s/jobs-$RUNTIME, type: DirectoryOrCreate}}]
      containers:
      - name: c
        image: $BUSYBOX
        command: [sh, -c, "mkdir /v/$JOB_COMPLETION_INDEX 2>/dev/null || test $JOB_COMPLETION_INDEX != 1 || exit 0; test $JOB_COMPLETION_INDEX != 1 || exit 3"]
        volumeMounts: [{name: v, mountPath: /v}]
`

// A Job's controller sees exit codes, and its pods go with it.
func TestJobs(t *testing.T) {
	both(t, func(s *stage) {
		s.apply(jobs)
		failing, several := "job/fails-"+s.runtime, "job/several-"+s.runtime
		defer s.kubectl("delete", failing, several, "--ignore-not-found", "--cascade=foreground")
		s.must("wait", "--for=condition=Failed", failing, "--timeout=200s")
		s.same("why the first failed", s.must("get", failing, "-o", "jsonpath={.status.conditions[?(@.type=='Failed')].reason}"), "PodFailurePolicy")
		s.must("wait", "--for=condition=Complete", several, "--timeout=200s")
		s.same("the other's pods", s.must("get", several, "-o", "jsonpath={.status.succeeded} {.status.completedIndexes}"), "4 0-3")
		s.must("wait", "--for=delete", several, "--timeout=60s")
	})
}
