package k8s

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// hostKinds are the pods that want a namespace of the node: the field, and what
// the policy and the events say.
var hostKinds = []struct{ name, field, denied, event string }{
	{"net", "hostNetwork", "hostNetwork: a pod of this RuntimeClass is a virtual machine and has its own network", "host network requested, which is not supported"},
	{"pid", "hostPID", "hostPID: a pod of this RuntimeClass is a virtual machine and cannot see the node's processes", "allow_host_namespaces"},
	{"ipc", "hostIPC", "hostIPC: a pod of this RuntimeClass is a virtual machine and cannot share the node's IPC", "allow_host_namespaces"},
}

const hostPod = `
apiVersion: v1
kind: Pod
metadata: {name: policy-$RUNTIME}
spec:
  runtimeClassName: $RUNTIME
  FIELD: true
  containers: [{name: c, image: $BUSYBOX, command: [sleep, "1000"]}]
`

// The policy that is shipped refuses pods that want the node's namespaces, and
// no others.
func TestAdmissionPolicy(t *testing.T) {
	policy := filepath.Join(bed.layout.Root, "deploy/kubernetes/admission.yaml")
	on(t, []string{kata}, func(s *stage) {
		defer func() { // also if the case has failed
			s.node.Kubectl(context.WithoutCancel(s.ctx), "", "delete", "--ignore-not-found", "-f", policy)
		}()
		s.must("apply", "-f", policy)
		try := func(runtime, field string) string {
			yaml := strings.NewReplacer("FIELD", field, "$RUNTIME", runtime).Replace(hostPod)
			return s.node.Kubectl(s.ctx, s.expand(yaml), "apply", "--dry-run=server", "-f", "-").Errors
		}
		for _, kind := range hostKinds {
			s.until(kind.field, "refused", func() string { // the policy takes a moment to be known
				if errors := try(kata, kind.field); !strings.Contains(errors, kind.denied) {
					return errors
				}
				return "refused"
			})
			s.same(kind.field+" with runc", try(runc, kind.field), "")
		}
		s.same("an ordinary pod", try(kata, "enableServiceLinks"), "")
		s.must("delete", "-f", policy)
		s.until("without the policy", "", func() string { return try(kata, "hostPID") })
	})
}

// Without the policy such a pod says in its events why it does not start.
func TestHostNamespacesAreRefused(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		for _, kind := range hostKinds {
			s.pod("host-"+kind.name, kind.field+": true\ncontainers: [{name: c, image: $BUSYBOX, command: [sleep, \"1000\"]}]")
		}
		for _, kind := range hostKinds {
			pod := "host-" + kind.name + "-" + s.runtime
			s.until(pod, "said", func() string {
				events := s.must("get", "events", "--field-selector", "involvedObject.name="+pod, "-o", "jsonpath={.items[*].message}")
				if !strings.Contains(events, kind.event) {
					return events
				}
				return "said"
			})
			s.same(kind.field+" starts", s.get(pod, ".status.phase"), "Pending")
		}
	})
}
