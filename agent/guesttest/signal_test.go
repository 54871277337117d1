package guesttest

import (
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"golang.org/x/sys/unix"
)

// A signal to a whole container reaches processes that are forked meanwhile, and one that
// was paused stays so.
func TestGuestSignalToAll(t *testing.T) {
	m := guestOnly(t)
	// Each of the chains is one process at a time, which forks the next and ends. The others
	// make the list long. The init waits for a signal that does not come.
	m.start(t, "chains", shell(`export NEXT='sh -c "$NEXT" & exit'; trap : TERM
for i in $(seq 100); do sleep 1000 & done
for i in 1 2 3 4 5 6 7 8; do sh -c "$NEXT"; done
: >/tmp/chained
mkfifo /tmp/none; while :; do read x <>/tmp/none; done`))
	awaitFile(t, "/rootfs/tmp/chained")
	if n := m.processes(t, "chains"); n <= 101 {
		t.Errorf("there are %d processes", n)
	}
	all := &taskapi.KillRequest{ID: "chains", Signal: uint32(unix.SIGTERM), All: true}
	m.kill(t, all)
	const most = 1 // the init
	begun := time.Now()
	for m.processes(t, "chains") > most && time.Since(begun) < 10*time.Second {
		time.Sleep(100 * time.Millisecond)
	}
	if n := m.processes(t, "chains"); n > most {
		t.Errorf("%d processes run on", n)
	}
	if _, err := m.task.Pause(t.Context(), &taskapi.PauseRequest{ID: "chains"}); err != nil {
		t.Fatal(err)
	}
	m.kill(t, all)
	if got := fileIn(t, "/sys/fs/cgroup/katabox/chains/cgroup.freeze"); got != "1\n" {
		t.Errorf("a paused container was signalled, and has %q in cgroup.freeze", got)
	}
	if _, err := m.task.Resume(t.Context(), &taskapi.ResumeRequest{ID: "chains"}); err != nil {
		t.Fatal(err)
	}
}

// processes counts the processes of a container.
func (m *machine) processes(t *testing.T, id string) int {
	t.Helper()
	resp, err := m.task.Pids(t.Context(), &taskapi.PidsRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return len(resp.GetProcesses())
}
