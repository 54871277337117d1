package k8s

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/k8s/node"
)

// latencyRounds is how many pods are started for each figure, one after the other:
// odd, for the median.
const latencyRounds = 5

// latencyPod prints a line as soon as it runs.
const latencyPod = `containers: [{name: c, image: $BUSYBOX, command: [sh, -c, "echo started; exec sleep 1000"]}]`

// How long pods take to start. The figures are printed, with runc's first.
//
// Both figures have a resolution of some milliseconds. Running is when a watch reports
// it, so the kubelet's delay is in it; a line of output has containerd's time.
func TestStartLatency(t *testing.T) {
	for _, runtime := range []string{runc, kata} {
		on(t, []string{runtime}, func(s *stage) {
			s.startTimes("first", nil) // has the image pulled
			var running, output []time.Duration
			for i := range latencyRounds {
				r, o := s.startTimes(fmt.Sprintf("latency-%d", i), nil)
				running, output = append(running, r), append(output, o)
			}
			s.Logf("%s: created to Running %s; created to the first line of output %s", runtime, spread(running), spread(output))
		})
	}
}

// Pods that find a spare machine do not boot one.
func TestStartLatencyWithSpares(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		s.configure("93-pool.toml", "[factory]\nenable_template = true\ntemplate_path = \""+node.Dir+"/templates\"\nvm_cache_number = 1\n")
		defer s.noSpares()
		s.startTimes("first", nil) // has a template and a spare made
		var running, output []time.Duration
		for i := range 3 {
			spare := s.spare()
			r, o := s.startTimes(fmt.Sprintf("spare-%d", i), func(pod string) {
				s.same("the shim of "+pod, fmt.Sprint(s.shim(pod)), spare)
			})
			running, output = append(running, r), append(output, o)
		}
		s.Logf("%s with a spare: created to Running %s; created to the first line of output %s", kata, spread(running), spread(output))
	})
}

// spare waits for the only spare and returns its process id.
func (s *stage) spare() (pid string) {
	s.Helper()
	s.until("the spare", "ready", func() string {
		r := factory(s.ctx, "status", "--json")
		var status struct {
			Spares []struct {
				PID   int
				State string
			}
		}
		if err := json.Unmarshal([]byte(r.Out), &status); err != nil || len(status.Spares) != 1 {
			return r.Out + r.Errors
		}
		pid = fmt.Sprint(status.Spares[0].PID)
		return status.Spares[0].State
	})
	return pid
}

// noSpares ends spares and removes templates.
func (s *stage) noSpares() {
	s.Helper()
	s.clear()
	if r := factory(context.WithoutCancel(s.ctx), "destroy"); r.Code != 0 {
		s.Errorf("destroy the spares: %+v", r)
	}
}

// factory runs a command of the installed kata-runtime.
func factory(ctx context.Context, args ...string) node.Result {
	return node.Run(exec.CommandContext(ctx, "/opt/kata/bin/kata-runtime", append([]string{"factory"}, args...)...))
}

// startTimes starts a pod and returns how long it took from its creation to the
// phase Running and to its first line of output. Then it calls check, unless that is
// nil, and removes the pod.
func (s *stage) startTimes(name string, check func(pod string)) (running, output time.Duration) {
	s.Helper()
	pod := name + "-" + s.runtime
	s.pods = append(s.pods, pod)
	var created, ran time.Time
	create := func() (err error) {
		created, err = s.node.CreatePod(s.ctx, s.expand(s.podYAML(name, latencyPod)))
		return err
	}
	err := s.node.WatchPods(s.ctx, "case="+name, create, func(e node.PodEvent) bool {
		ran = e.Time
		return e.Pod.Metadata.Name == pod && e.Pod.Status.Phase == "Running"
	})
	if err != nil {
		s.Fatal(err)
	}
	spoke := s.firstLine(pod)
	if check != nil {
		check(pod)
	}
	s.must("delete", "pod", pod)
	if spoke.Before(created) || ran.Before(created) {
		s.Fatalf("pod %s was created at %v, printed at %v, ran at %v", pod, created, spoke, ran)
	}
	return ran.Sub(created), spoke.Sub(created)
}

// firstLine returns the time of the first line of a pod's log.
func (s *stage) firstLine(pod string) time.Time {
	s.Helper()
	var at time.Time
	s.until("the log's first line", "started", func() string {
		stamp, text, _ := strings.Cut(strings.TrimSpace(s.must("logs", pod, "--timestamps")), " ")
		var err error
		if at, err = time.Parse(time.RFC3339Nano, stamp); err != nil {
			return errors.Join(err, errors.New(text)).Error()
		}
		return text
	})
	return at
}

// spread describes an odd number of durations.
func spread(all []time.Duration) string {
	slices.Sort(all)
	return fmt.Sprintf("%.2f s (%.2f to %.2f, median of %d)", all[len(all)/2].Seconds(), all[0].Seconds(), all[len(all)-1].Seconds(), len(all))
}
