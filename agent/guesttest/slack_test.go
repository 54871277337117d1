package guesttest

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// slackOf prints the process's timer slack, and the one that it goes back to.
const slackOf = "read now </proc/$$/timerslack_ns; echo 0 >/proc/$$/timerslack_ns; read usual </proc/$$/timerslack_ns; echo $now $usual"

// The agent's threads have a large timer slack, and containers' processes, however
// they are started, the one of every Linux process.
func TestGuestTimerSlack(t *testing.T) {
	m := guestOnly(t)
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		text := strings.TrimSpace(fileIn(t, "/proc/"+thread.Name()+"/timerslack_ns"))
		if ns, err := strconv.Atoi(text); err != nil || ns < 1e6 {
			t.Errorf("thread %s of the agent has a timer slack of %q ns, want 1 ms or more", thread.Name(), text)
		}
	}
	const want = "50000 50000\n"
	ways := map[string]func(*specs.Process){"own": func(*specs.Process) {}, "stage": byStage}
	for by, change := range ways {
		spec := shell(slackOf)
		change(spec.Process)
		if r := m.run(t, "slack-"+by, spec); r.out != want {
			t.Errorf("container's init, %s: %q %s, want %q", by, r.out, r.errs, want)
		}
	}
	m.start(t, "slack", shell("exec sleep 1000"))
	for by, change := range ways {
		p := process(slackOf)
		change(p)
		if r := m.exec(t, "slack", by, p); r.out != want {
			t.Errorf("exec, %s: %q %s, want %q", by, r.out, r.errs, want)
		}
	}
}
