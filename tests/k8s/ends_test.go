package k8s

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/tests/k8s/node"
)

// logging is a container that notes its start and its signal in the pod's file
// on the node, and ends with a code.
func logging(name, code, more string) string {
	return `
			- name: ` + name + `
			  image: $BUSYBOX
			  command: [sh, -c, "trap 'echo ` + name + ` ends >>/log/order; exit ` + code + `' TERM; echo ` + name + ` >>/log/order; touch /up; sleep 1000 & wait"]
			  volumeMounts: [{name: log, mountPath: /log}]
			  startupProbe: {exec: {command: [test, -e, /up]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 60}` + more
}

// Sidecars start before the others and in their order, and end after them in the
// reverse one, each after its hook; a container that ignores its signal is killed
// when the pod's time is up.
func TestSidecarsEndLast(t *testing.T) {
	const sidecar = "\n\t\t\t  restartPolicy: Always\n\t\t\t  lifecycle: {preStop: {sleep: {seconds: 1}}}"
	both(t, func(s *stage) {
		log := filepath.Join(node.Dir, "ends-"+s.runtime)
		pod := s.pod("ends", `
			volumes: [{name: log, hostPath: {path: `+log+`, type: DirectoryOrCreate}}]
			initContainers:`+
			logging("first", "11", sidecar)+`
			- {name: init, image: $BUSYBOX, command: [sh, -c, "echo init >>/log/order"], volumeMounts: [{name: log, mountPath: /log}]}`+
			logging("second", "12", sidecar)+`
			containers:`+logging("main", "13", "")+`
			- {name: deaf, image: $BUSYBOX, command: [sleep, "1000"]}`)
		s.ready(pod)
		s.must("patch", "pod", pod, "--type=merge", "-p", `{"metadata": {"finalizers": ["katabox.test/look"]}}`)
		defer s.node.Kubectl(context.WithoutCancel(s.ctx), "", "patch", "pod", pod, "--type=merge", "-p", `{"metadata": {"finalizers": null}}`)
		s.must("delete", "pod", pod, "--wait=false", "--grace-period=15")
		s.until("how they ended", "11 0 12 137 13", func() string {
			return s.get(pod, ".status['initContainerStatuses','containerStatuses'][*].state.terminated.exitCode")
		})
		order, err := os.ReadFile(filepath.Join(log, "order"))
		if err != nil {
			s.Error(err)
		}
		s.same("the order", string(order), "first\ninit\nsecond\nmain\nmain ends\nsecond ends\nfirst ends\n")
	})
}
