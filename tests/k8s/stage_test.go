package k8s

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/cri/images"
	"github.com/katabox/katabox/tests/k8s/node"
)

// caseTimeout bounds a case, with each runtime.
const caseTimeout = 5 * time.Minute

// The runtimes, by their RuntimeClasses' names.
const runc, kata = "runc", "kata"

// stage is where a case is played with one runtime.
type stage struct {
	*testing.T
	ctx     context.Context //nolint:containedctx // of one case, as a test has it
	runtime string
	node    *node.Node
	pods    []string
}

// both plays a case with both runtimes at the same time, and then checks that
// nothing of the pods is left.
func both(t *testing.T, play func(*stage)) {
	t.Helper()
	on(t, []string{runc, kata}, play)
}

// on plays a case with some runtimes.
func on(t *testing.T, runtimes []string, play func(*stage)) {
	t.Helper()
	t.Run("with", func(t *testing.T) {
		for _, runtime := range runtimes {
			t.Run(runtime, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
				defer cancel()
				s := &stage{T: t, ctx: ctx, runtime: runtime, node: bed.node}
				defer s.clear()
				play(s)
			})
		}
	})
	if err := nothingLeft(t.Context()); err != nil {
		t.Error(err)
	}
}

// clear describes the pods if the case has failed, and removes them.
func (s *stage) clear() {
	if len(s.pods) == 0 {
		return
	}
	if s.Failed() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), time.Minute)
		s.describe(ctx)
		cancel()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 2*time.Minute)
	defer cancel()
	if r := s.node.Kubectl(ctx, "", append([]string{"delete", "pod", "--ignore-not-found", "--grace-period=1"}, s.pods...)...); r.Code != 0 {
		s.Errorf("delete the pods: %+v", r)
	}
}

// describe logs how the pods are, and what happened to them.
func (s *stage) describe(ctx context.Context) {
	const events = `jsonpath={range .items[*]}{.lastTimestamp} {.reason}: {.message}{"\n"}{end}`
	for _, pod := range s.pods {
		s.Logf("%s: %s\n%s", pod,
			s.node.Kubectl(ctx, "", "get", "pod", pod, "-o", "jsonpath={.status.phase}: {.status.containerStatuses[*].state}").Out,
			s.node.Kubectl(ctx, "", "get", "events", "--field-selector", "involvedObject.name="+pod, "-o", events).Out)
	}
}

// kubectl runs one of its commands and returns how it ended.
func (s *stage) kubectl(args ...string) node.Result { return s.node.Kubectl(s.ctx, "", args...) }

// must runs a command of kubectl that succeeds, and returns its output.
func (s *stage) must(args ...string) string {
	s.Helper()
	r := s.kubectl(args...)
	if r.Code != 0 {
		s.Fatalf("kubectl %s: %+v", strings.Join(args, " "), r)
	}
	return r.Out
}

// apply creates objects from YAML, in which words beginning with "$" are
// replaced.
func (s *stage) apply(yaml string) {
	s.Helper()
	if r := s.node.Kubectl(s.ctx, s.expand(yaml), "apply", "-f", "-"); r.Code != 0 {
		s.Fatalf("apply: %+v\n%s", r, yaml)
	}
}

func (s *stage) expand(text string) string {
	return strings.NewReplacer("$BUSYBOX", images.Busybox, "$WEB", images.Web, "$RUNTIME", s.runtime).Replace(text)
}

// pod creates a pod with the lines of its specification, and returns its name:
// the given one and the runtime's.
func (s *stage) pod(name, spec string) string {
	s.Helper()
	full := name + "-" + s.runtime
	s.pods = append(s.pods, full)
	s.apply(s.podYAML(name, spec))
	return full
}

// podYAML returns a pod with the lines of its specification.
func (s *stage) podYAML(name, spec string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s-%s, labels: {case: %[1]s}}\nspec:\n  runtimeClassName: %[2]s\n"+
		"  terminationGracePeriodSeconds: 1\n%[3]s", name, s.runtime, indent(spec))
}

// indent moves lines below "spec:", and removes the indentation that they have in
// common with the first.
func indent(text string) string {
	text = strings.Trim(text, "\n")
	margin := text[:len(text)-len(strings.TrimLeft(text, "\t"))]
	var b strings.Builder
	for line := range strings.Lines(text + "\n") {
		b.WriteString("  " + strings.TrimPrefix(line, margin))
	}
	return b.String()
}

// wait waits until a pod has a condition, as "kubectl wait --for" has it.
func (s *stage) wait(pod, condition string) {
	s.Helper()
	s.must("wait", "--for="+condition, "pod/"+pod, "--timeout=300s")
}

func (s *stage) ready(pod string)     { s.Helper(); s.wait(pod, "condition=Ready") }
func (s *stage) succeeded(pod string) { s.Helper(); s.wait(pod, "jsonpath={.status.phase}=Succeeded") }

// get returns a field of a pod.
func (s *stage) get(pod, path string) string {
	s.Helper()
	return s.must("get", "pod", pod, "-o", "jsonpath={"+path+"}")
}

// sh runs a shell's command in a pod's first container and returns its output
// without the last newline.
func (s *stage) sh(pod, script string) string {
	s.Helper()
	return strings.TrimSuffix(s.must("exec", pod, "--", "sh", "-c", script), "\n")
}

// same fails the case, which goes on, unless a value is as expected.
func (s *stage) same(what, got, want string) {
	s.Helper()
	if got != want {
		s.Errorf("%s: %q, want %q", what, got, want)
	}
}

// until waits until read returns what is wanted.
func (s *stage) until(what, want string, read func() string) {
	s.Helper()
	s.untilOr(s.ctx, what, want, read)
}

// untilOr waits until read returns what is wanted, or ctx ends.
func (s *stage) untilOr(ctx context.Context, what, want string, read func() string) {
	s.Helper()
	for {
		got := read()
		if got == want {
			return
		}
		select {
		case <-ctx.Done():
			s.Fatalf("%s: %q, want %q", what, got, want)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// ctr runs a command of containerd's own client, with its namespace for pods.
func (s *stage) ctr(args ...string) string {
	s.Helper()
	r := node.Ctr(s.ctx, args...)
	if r.Code != 0 {
		s.Fatalf("ctr %v: %+v", args, r)
	}
	return strings.TrimSpace(r.Out)
}
