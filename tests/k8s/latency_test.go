package k8s

import (
	"errors"
	"fmt"
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
			var running, output []time.Duration
			for i := range latencyRounds + 1 {
				r, o := s.startTimes(fmt.Sprintf("latency-%d", i))
				if i > 0 { // before the first one the image is pulled
					running, output = append(running, r), append(output, o)
				}
			}
			s.Logf("%s: created to Running %s; created to the first line of output %s (median and range of %d pods)",
				runtime, spread(running), spread(output), latencyRounds)
		})
	}
}

// startTimes starts a pod, removes it, and returns how long it took from its
// creation to the phase Running and to its first line of output.
func (s *stage) startTimes(name string) (running, output time.Duration) {
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

// spread returns the median of an odd number of durations, and their range.
func spread(all []time.Duration) string {
	slices.Sort(all)
	return fmt.Sprintf("%.2f s (%.2f to %.2f)", all[len(all)/2].Seconds(), all[0].Seconds(), all[len(all)-1].Seconds())
}
