package k8s

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/k8s/node"
)

// singleton is one pod that keeps its name and its volume.
const singleton = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: paused-$RUNTIME}
spec:
  replicas: 1
  serviceName: paused
  selector: {matchLabels: {case: paused-$RUNTIME}}
  template:
    metadata: {labels: {case: paused-$RUNTIME}}
    spec:
      runtimeClassName: $RUNTIME
      terminationGracePeriodSeconds: 1
      volumes: [{name: work, hostPath: {path: DIR, type: DirectoryOrCreate}}]
      containers: [{name: c, image: $BUSYBOX, command: [sleep, "1000"], volumeMounts: [{name: work, mountPath: /work}]}]
`

// A pod that is paused by scaling to zero leaves nothing on the node, and comes back
// by its name, with its volume and as a new machine.
func TestPauseAndResume(t *testing.T) {
	for _, runtime := range []string{runc, kata} {
		on(t, []string{runtime}, func(s *stage) { // alone: the node is to be empty between
			set, pod := "statefulset/paused-"+runtime, "paused-"+runtime+"-0"
			s.pods = append(s.pods, pod) // described if the case fails
			dir := filepath.Join(node.Dir, "paused-"+runtime)
			defer func() {
				s.node.Kubectl(context.WithoutCancel(s.ctx), "", "delete", "--ignore-not-found", "--cascade=foreground", set)
			}()
			s.apply(strings.ReplaceAll(singleton, "DIR", dir))
			s.scaled(set, "1")
			s.sh(pod, "echo word >/work/file; echo lost >/tmp/file")
			s.must("scale", set, "--replicas=0")
			s.must("wait", "--for=delete", "pod/"+pod, "--timeout=120s")
			if err := nothingLeft(s.ctx); err != nil {
				s.Error(err)
			}
			s.must("scale", set, "--replicas=1")
			s.scaled(set, "1")
			s.same("what is left of the pod's work", s.sh(pod, "cat /work/file; cat /tmp/file 2>/dev/null; hostname"), "word\n"+pod)
		})
	}
}

// scaled waits until a set has that many pods that are ready.
func (s *stage) scaled(set, pods string) {
	s.Helper()
	s.must("wait", "--for=jsonpath={.status.readyReplicas}="+pods, set, "--timeout=240s")
}
