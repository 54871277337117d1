package guest

import (
	"context"
	"os/exec"
	"runtime"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"
	"golang.org/x/sys/unix"
)

// A Reaper that cannot list the processes for a moment tries again: its end would be the
// machine's, and no signal comes for a zombie that is there already.
func TestReaperOutlastsALackOfDescriptors(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	logged := test.NewGlobal()
	defer logged.Reset()
	r := NewReaper()
	spared, orphan := exec.Command("/bin/true"), orphanOf(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started, begin, done := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		// The kernel looks for zombies among the children of the calling thread first:
		// so it finds the spared one, which hides the orphan.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		end := r.Begin()
		err := spared.Start()
		if err == nil {
			end(spared.Process.Pid)
		}
		started <- err
		<-begin
		defer close(done)
		r.Run(ctx)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(orphan, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{spared.Process.Pid, orphan} {
		eventually(t, "it is a zombie", func() bool {
			zombie, err := peek(unix.P_PID, pid)
			return err == nil && zombie == pid
		})
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	close(begin)
	eventually(t, "the processes cannot be listed", func() bool { return logged.LastEntry() != nil })
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the orphan is reaped", func() bool { return unix.Kill(orphan, 0) != nil })
	cancel()
	<-done
	if err := spared.Wait(); err != nil {
		t.Errorf("the spared child was stolen: %v", err)
	}
	r.Done(spared.Process.Pid)
}
