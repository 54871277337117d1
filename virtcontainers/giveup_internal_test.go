package virtcontainers

import (
	"context"
	"testing"
	"time"
)

// An exec whose start is given up is stopped at once, with an exit, and stays deleted
// if it is deleted before that exit is told.
func TestGivenUpStartHasAnExit(t *testing.T) {
	t.Parallel()
	p := newProcess(&Container{ID: "c", sandbox: &Sandbox{lifeCtx: context.Background()}}, "e", false, nil)
	if err := p.beginStart(); err != nil {
		t.Fatal(err)
	}
	status, ok := p.giveUp()
	if info := p.Info(); !ok || info.State != Stopped || info.Exit.Status != ExitLost || info.Exit.At.IsZero() {
		t.Errorf("it is %s with exit %+v, want stopped with %d", info.State, info.Exit, ExitLost)
	}
	if exit, err := p.setDeleted(); err != nil || exit.Status != ExitLost || exit.ExecID != "e" {
		t.Errorf("deleted: %+v, %v", exit, err)
	}
	p.tell(Exit{Status: status, At: time.Now()}, true)
	if info := p.Info(); info.State != Deleted {
		t.Errorf("it is %s, want deleted: a second deletion would be let in", info.State)
	}
}
