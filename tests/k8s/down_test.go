package k8s

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/k8s/node"
)

// endingPod has a container that waits for a file, prints 2,000 lines and ends
// with code 7, and one that only runs.
const endingPod = `
	volumes: [{name: state, emptyDir: {}}]
	containers:
	- name: a
	  image: $BUSYBOX
	  command: [sh, -c, "echo begins; until [ -e /state/end ]; do sleep 0.1; done; rm /state/end; seq 2000; date -u +%s >/state/ended; exit 7"]
	  volumeMounts: [{name: state, mountPath: /state}]
	- {name: b, image: $BUSYBOX, command: [sleep, "1000"], volumeMounts: [{name: state, mountPath: /state}]}`

// A container ends while containerd is down: the kubelet learns with which code and
// when, has all that it printed, and starts it again in the same pod. (With runc the code
// is 255, and what it printed last is lost.) A pod that is deleted then goes once
// containerd is back.
func TestContainersEndWithoutContainerd(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		var deleted []string
		for _, s.runtime = range []string{runc, kata} {
			deleted = append(deleted, s.pod("deleted", countingPod))
		}
		ending := s.pod("ending", endingPod)
		for _, pod := range append(deleted, ending) {
			s.ready(pod)
		}
		sandbox := s.sandbox(ending)
		s.whileDown(func() {
			s.endFirst(ending)
			s.must(append([]string{"delete", "pod", "--wait=false", "--grace-period=1"}, deleted...)...)
			time.Sleep(2 * time.Second) // the kubelet tries to end the pods
		})
		s.endedMeanwhile(ending)
		s.same("the sandbox of "+ending, s.sandbox(ending), sandbox)
		s.must(append([]string{"wait", "--for=delete", "pod", "--timeout=120s"}, deleted...)...)
	})
}

// whileDown calls do while containerd is down.
func (s *stage) whileDown(do func()) {
	s.Helper()
	if err := s.node.Down(s.ctx, node.Containerd); err != nil {
		s.Fatal(err)
	}
	defer func() {
		if err := s.node.Up(s.ctx, node.Containerd); err != nil {
			s.Fatal(err)
		}
	}()
	do()
}

// state is the directory of a pod's volume on the node.
func (s *stage) state(pod string) string {
	s.Helper()
	return "/var/lib/kubelet/pods/" + s.get(pod, ".metadata.uid") + "/volumes/kubernetes.io~empty-dir/state"
}

// endFirst has the first container end, and waits for its last act.
func (s *stage) endFirst(pod string) {
	s.Helper()
	dir := s.state(pod)
	writeFile(s, dir+"/end", "")
	s.until("the end of "+pod, "ended", func() string {
		if _, err := readNumber(dir + "/ended"); err != nil {
			return err.Error()
		}
		return "ended"
	})
}

// endedMeanwhile checks what is known of the first container's end.
func (s *stage) endedMeanwhile(pod string) {
	s.Helper()
	const last = ".status.containerStatuses[?(@.name=='a')].lastState.terminated"
	s.until("the last state of "+pod, "7 Error", func() string { return s.get(pod, last+"['exitCode','reason']") })
	s.until("restarts of "+pod, "1 0", func() string { return s.get(pod, ".status.containerStatuses[*].restartCount") })
	ended, err := readNumber(s.state(pod) + "/ended")
	if err != nil {
		s.Fatal(err)
	}
	finished, err := time.Parse(time.RFC3339, s.get(pod, last+".finishedAt"))
	if err != nil {
		s.Fatal(err)
	}
	late := finished.Unix() - int64(ended)
	s.Logf("%s: finishedAt is %d s after the container's last act", pod, late)
	var want strings.Builder
	want.WriteString("begins\n")
	for i := range 2000 {
		fmt.Fprintln(&want, i+1)
	}
	if got := s.must("logs", pod, "-c", "a", "--previous"); got != want.String() {
		s.Errorf("the log of %s: %d bytes, want %d; it ends with %q", pod, len(got), want.Len(), got[max(0, len(got)-40):])
	}
}

func writeFile(s *stage, path, text string) {
	s.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// readNumber reads a file of one number.
func readNumber(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
