package k8s

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/k8s/node"
)

// The objects of Agent Sandbox, a project of Kubernetes' SIG Apps
// (sigs.k8s.io/agent-sandbox, api/v1beta1 and extensions/api/v1beta1).
const (
	agentSandbox = `
apiVersion: agents.x-k8s.io/v1beta1
kind: Sandbox
metadata: {name: agent-$RUNTIME}
spec:
  podTemplate:
    spec:
      runtimeClassName: $RUNTIME
      terminationGracePeriodSeconds: 1
      volumes: [{name: work, hostPath: {path: DIR, type: DirectoryOrCreate}}]
      containers: [{name: c, image: $BUSYBOX, command: [sleep, "1000"], volumeMounts: [{name: work, mountPath: /work}]}]
`
	agentPool = `
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxTemplate
metadata: {name: agents-$RUNTIME}
spec:
  networkPolicyManagement: Unmanaged
  podTemplate:
    spec:
      runtimeClassName: $RUNTIME
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: $BUSYBOX, command: [sleep, "1000"]}]
---
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxWarmPool
metadata: {name: agents-$RUNTIME}
spec: {replicas: 1, sandboxTemplateRef: {name: agents-$RUNTIME}}
`
	agentClaim = `
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxClaim
metadata: {name: NAME-$RUNTIME}
spec: {warmPoolRef: {name: agents-$RUNTIME}}
`
)

// agents runs Agent Sandbox's controller until the test ends.
func agents(t *testing.T) {
	t.Helper()
	on(t, []string{kata}, func(s *stage) { s.agentTypes() })
	const probe = "127.0.0.1:10281"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// Its webhook only converts objects of the older API, which needs kube-proxy.
	err := bed.node.StartService(ctx, sandboxController, "http://"+probe+"/readyz",
		"--extensions", "--leader-elect=false", "--enable-webhook=false", "--metrics-bind-address=0", "--health-probe-bind-address="+probe)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := bed.node.StopService(ctx, sandboxController); err != nil {
			t.Error(err)
		}
	})
}

// agentTypes applies the release's own CustomResourceDefinitions. Without its
// webhook they must not name one.
func (s *stage) agentTypes() {
	s.Helper()
	s.must("apply", "--server-side", "--force-conflicts", "-f", filepath.Join(toolsDir(bed.layout), sandboxTypes))
	for _, name := range []string{"sandboxes.agents", "sandboxclaims.extensions.agents", "sandboxtemplates.extensions.agents", "sandboxwarmpools.extensions.agents"} {
		crd := "crd/" + name + ".x-k8s.io"
		s.must("patch", crd, "--type=merge", "-p", `{"spec": {"conversion": {"strategy": "None", "webhook": null}}}`)
		s.must("wait", "--for=condition=Established", crd, "--timeout=60s")
	}
}

// agentReady waits until an object of Agent Sandbox is ready.
func (s *stage) agentReady(object string) {
	s.Helper()
	s.must("wait", "--for=condition=Ready", object, "--timeout=240s")
}

// noAgents removes objects of Agent Sandbox, also if the case has failed, and waits
// until they are gone.
func (s *stage) noAgents(objects ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 2*time.Minute)
	defer cancel()
	for _, object := range objects {
		if r := s.node.Kubectl(ctx, "", "delete", object, "--ignore-not-found", "--cascade=foreground", "--timeout=110s"); r.Code != 0 {
			s.Errorf("delete %s: %+v", object, r)
		}
	}
}

// A Sandbox runs in its own machine. Suspended, it leaves nothing on the
// node; resumed, it comes back by its name, with its volume and as a new machine.
func TestAgentSandbox(t *testing.T) {
	agents(t)
	for _, runtime := range []string{runc, kata} {
		on(t, []string{runtime}, func(s *stage) { // alone: the node is to be empty between
			pod := "agent-" + runtime
			box := "sandboxes.agents.x-k8s.io/" + pod
			s.pods = append(s.pods, pod) // described if the case fails
			defer s.noAgents(box)
			s.apply(strings.ReplaceAll(agentSandbox, "DIR", filepath.Join(node.Dir, pod)))
			s.agentReady(box)
			s.isolated(pod)
			s.sh(pod, "echo word >/work/file; echo lost >/tmp/file")

			s.must("patch", box, "--type=merge", "-p", `{"spec": {"operatingMode": "Suspended"}}`)
			s.must("wait", "--for=condition=Suspended", box, "--timeout=120s")
			s.must("wait", "--for=delete", "pod/"+pod, "--timeout=120s")
			if err := nothingLeft(s.ctx); err != nil {
				s.Errorf("suspended: %v", err)
			}
			began := time.Now()
			s.must("patch", box, "--type=merge", "-p", `{"spec": {"operatingMode": "Running"}}`)
			s.must("wait", "--for=create", "pod/"+pod, "--timeout=60s")
			s.agentReady(box)
			s.Logf("%s: resumed after %.1f s", runtime, time.Since(began).Seconds())
			s.same("what is left of the pod's work", s.sh(pod, "cat /work/file; cat /tmp/file 2>/dev/null; hostname"), "word\n"+pod)
			s.isolated(pod)

			s.must("delete", box, "--cascade=foreground", "--timeout=120s")
			s.must("wait", "--for=delete", "pod/"+pod, "--timeout=10s")
		})
	}
}

// isolated checks that a pod has a machine if its runtime says so, and none
// otherwise.
func (s *stage) isolated(pod string) {
	s.Helper()
	s.same("runtime class", s.get(pod, ".spec.runtimeClassName"), s.runtime)
	if s.runtime == kata {
		s.machine(pod)
		s.same("guest's kernel is the node's", fmt.Sprint(s.sh(pod, "cat /proc/sys/kernel/random/boot_id") == s.bootID()), "false")
	}
}

// bootID identifies the node's kernel.
func (s *stage) bootID() string {
	s.Helper()
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		s.Fatal(err)
	}
	return strings.TrimSpace(string(id))
}

// A claim takes the pod that waits in its warm pool, and the pool is filled again.
// With Katabox the pods that fill it are made of spare machines, which wait on the
// node as well.
func TestAgentWarmPool(t *testing.T) {
	agents(t)
	for _, runtime := range []string{runc, kata} {
		on(t, []string{runtime}, func(s *stage) {
			if runtime == kata {
				s.configure("94-pool.toml", "[factory]\nenable_template = true\ntemplate_path = \""+node.Dir+"/templates\"\nvm_cache_number = 1\n")
				defer s.noSpares()
			}
			name := "agents-" + runtime
			pool := "sandboxwarmpools.extensions.agents.x-k8s.io/" + name
			claims := []string{"sandboxclaims.extensions.agents.x-k8s.io/first-" + runtime, "sandboxclaims.extensions.agents.x-k8s.io/second-" + runtime}
			defer s.noAgents(append(claims, pool, "sandboxtemplates.extensions.agents.x-k8s.io/"+name)...)
			s.apply(agentPool)
			s.full(pool)
			waiting := s.waiting()
			for i, claim := range claims {
				waiting = s.claimed(pool, claim, waiting)
				s.Logf("%s: claim %d has the pod that waited; %s waits now", runtime, i+1, waiting)
			}
		})
	}
}

// claimed makes a claim, checks that it gets the pod that waits, and returns the one
// that waits then.
func (s *stage) claimed(pool, claim, waiting string) string {
	s.Helper()
	shim, spare := s.shim(waiting), ""
	if s.runtime == kata {
		spare = s.spare()
	}
	_, name, _ := strings.Cut(claim, "/")
	name, _, _ = strings.Cut(name, "-")
	began := time.Now()
	s.apply(strings.ReplaceAll(agentClaim, "NAME", name))
	s.agentReady(claim)
	ready := time.Since(began)
	s.same("the claim's sandbox", s.must("get", claim, "-o", "jsonpath={.status.sandbox.name}"), waiting)
	s.same("the shim of the claim's pod", fmt.Sprint(s.shim(waiting)), fmt.Sprint(shim))
	next := waiting
	s.until("another pod waits", "yes", func() string {
		if next = s.waiting(); next == waiting || next == "" {
			return next
		}
		return "yes"
	})
	s.must("wait", "--for=create", "pod/"+next, "--timeout=60s")
	s.ready(next)
	s.full(pool)
	s.Logf("%s: a claim was ready after %.1f s, its pool full again after %.1f s", s.runtime, ready.Seconds(), time.Since(began).Seconds())
	if s.runtime == kata {
		s.same("the shim of the pod that fills the pool", fmt.Sprint(s.shim(next)), spare)
	}
	return next
}

// full waits until the pod of a warm pool is ready.
func (s *stage) full(pool string) {
	s.Helper()
	s.must("wait", "--for=jsonpath={.status.readyReplicas}=1", pool, "--timeout=240s")
}

// waiting returns the name of the only Sandbox that no claim has.
func (s *stage) waiting() string {
	s.Helper()
	const owner = `jsonpath={range .items[?(@.metadata.ownerReferences[0].kind=="SandboxWarmPool")]}{.metadata.name}{end}`
	return s.must("get", "sandboxes.agents.x-k8s.io", "-o", owner)
}
