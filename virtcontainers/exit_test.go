package virtcontainers_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
)

var errDied = errors.New("qemu: killed by signal 11")

// Each scenario ends the pod's processes in its own way; each process must
// exit exactly once, with the right status.
func TestExits(t *testing.T) {
	t.Parallel() // it mostly waits
	tests := []struct {
		name string
		play func(*pod)
		want []string
		// wantFirst, when set, must come first, and wantLast last.
		wantFirst, wantLast string
		// keeps says that the sandbox lives on.
		keeps bool
	}{
		{name: "normal exit", play: func(p *pod) {
			p.run(sandboxID)
			p.exits(sandboxID, "", 7)
		}, want: []string{"pod=7"}},
		{name: "service container", play: func(p *pod) {
			p.run(sandboxID)
			p.run("c1")
			p.exits("c1", "", 3)
		}, want: []string{"c1=3"}, keeps: true},
		{name: "status of a signal", play: func(p *pod) {
			p.run(sandboxID)
			p.run("c1")
			p.exits("c1", "", 128+15)
		}, want: []string{"c1=143"}, keeps: true},
		{name: "exec before init", play: func(p *pod) {
			c := p.run(sandboxID)
			p.start(p.exec(c, "e1"))
			p.exits(sandboxID, "", 0)
		}, want: []string{"pod/e1=137", "pod=0"}, wantFirst: "pod/e1=137"},
		{name: "exec alone", play: func(p *pod) {
			c := p.run(sandboxID)
			p.start(p.exec(c, "e1"))
			p.exits(sandboxID, "e1", 9)
		}, want: []string{"pod/e1=9"}, keeps: true},
		{name: "the sandbox takes its containers along", play: func(p *pod) {
			p.run(sandboxID)
			p.run("c1")
			p.start(p.exec(p.run("c2"), "e1"))
			p.create("c3")
			p.exits(sandboxID, "", 0)
		}, want: []string{"pod=0", "c1=137", "c2/e1=137", "c2=137", "c3=137"}, wantLast: "pod=0"},
		{name: "Stop", play: func(p *pod) {
			p.run(sandboxID)
			p.run("c1")
			if err := p.Stop(p.t.Context()); err != nil {
				p.t.Error(err)
			}
		}, want: []string{"pod=137", "c1=137"}, wantLast: "pod=137"},
		{name: "VM death while running", play: func(p *pod) {
			p.start(p.exec(p.run(sandboxID), "e1"))
			p.run("c1")
			p.host.VM().Die(errDied)
		}, want: []string{"pod=255", "pod/e1=255", "c1=255"}},
		{name: "VM death while created", play: func(p *pod) {
			p.create(sandboxID)
			p.host.VM().Die(hypervisor.ErrPowerOff)
		}, want: []string{"pod=255"}},
		{name: "VM death with an exec that was not started", play: func(p *pod) {
			p.exec(p.run(sandboxID), "e1")
			p.host.VM().Die(errDied)
		}, want: []string{"pod=255"}},
		{name: "end of the agent's events", play: func(p *pod) {
			p.run(sandboxID)
			p.run("c1")
			p.host.Agent.EndEvents()
		}, want: []string{"pod=255", "c1=255"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPod(t)
			tt.play(p)
			if !tt.keeps {
				p.awaitStopped()
			}
			p.observer.expect(t, append([]string(nil), tt.want...)...)
			list := p.observer.list()
			if first := list[0]; tt.wantFirst != "" && first != tt.wantFirst {
				t.Errorf("%s came first, want %s", first, tt.wantFirst)
			}
			if last := list[len(list)-1]; tt.wantLast != "" && last != tt.wantLast {
				t.Errorf("%s came last, want %s", last, tt.wantLast)
			}
			if err := p.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			for _, c := range p.Containers() {
				if _, err := c.Delete(t.Context()); err != nil {
					t.Error(err)
				}
			}
			checkNothingLeft(t, p.host)
		})
	}
}

// The exit may be reported before Start returns: the start is still announced
// first.
func TestExitBeforeStartReturned(t *testing.T) {
	p := newPod(t)
	c := p.create(sandboxID)
	process := initOf(t, c)
	// In the guest, the process ends before the answer is sent.
	p.host.Agent.After("Start", func(context.Context, proto.Message) error {
		return p.host.Agent.Exit(sandboxID, "", 5)
	})
	err := process.Start(t.Context(), func(info virtcontainers.ProcessInfo) {
		if info.State != virtcontainers.Running || len(p.observer.list()) != 0 {
			t.Errorf("announced as %s, after the exits %v", info.State, p.observer.list())
		}
	})
	if err != nil {
		t.Error(err)
	}
	p.observer.expect(t, "pod=5")
}

// What the observer does before a container's end is done when the exit is known.
func TestEndingComesBeforeTheExit(t *testing.T) {
	p := newPod(t)
	inits := map[string]*virtcontainers.Process{sandboxID: initOf(t, p.run(sandboxID)), "c1": initOf(t, p.run("c1"))}
	var ended []string
	p.observer.onEnding = func(id string) {
		ended = append(ended, id)
		select {
		case <-inits[id].Done():
			t.Errorf("the exit of %s is known before", id)
		default:
		}
	}
	p.exits("c1", "", 5)
	statusOf(t, inits["c1"])
	p.exits(sandboxID, "", 6)
	statusOf(t, inits[sandboxID])
	if want := []string{"c1", sandboxID}; !slices.Equal(ended, want) {
		t.Errorf("the containers %v have ended, want %v", ended, want)
	}
}

// holdStop makes the machine's end wait until stop is closed; stopping tells
// that it has begun.
func (p *pod) holdStop() (stopping, stop chan struct{}) {
	stopping, stop = make(chan struct{}), make(chan struct{})
	p.host.Monitor.Hook(fake.StepStop, func(context.Context, *fake.VM) error {
		select {
		case stopping <- struct{}{}:
			<-stop
		case <-stop:
		}
		return nil
	})
	return stopping, stop
}

// A caller that sees the pid end, or whose Wait returns, may take what the
// machine uses. So the stand-in of a sandbox's own container ends after the
// machine, and the exit is reported after both.
func TestMachineEndsBeforeTheExitIsTold(t *testing.T) {
	const told = "the guest tells of the exit"
	ways := map[string]func(*pod){
		told:                func(p *pod) { p.exits(sandboxID, "", 5) },
		"the agent is lost": func(p *pod) { p.host.Agent.EndEvents() },
		"stop":              func(p *pod) { go func() { _ = p.Stop(context.Background()) }() },
	}
	for name, end := range ways {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			c := p.run(sandboxID)
			stopping, stop := p.holdStop()
			end(p)
			await(t, "the machine's end", stopping)
			select {
			case <-initOf(t, c).Done():
				t.Error("the exit is told while the machine runs")
			default:
			}
			if state := c.Info().State; state != virtcontainers.Running || !alive(c.PID()) {
				t.Errorf("while the machine runs the container is %s, its process there: %v", state, alive(c.PID()))
			}
			if list := c.Pids(t.Context()); int(list[0].Pid) != c.PID() {
				t.Errorf("processes %v", list)
			}
			close(stop)
			statusOf(t, initOf(t, c))
			select {
			case <-p.host.VM().Done():
			default:
				t.Error("the machine runs when the exit is told")
			}
			if alive(c.PID()) {
				t.Error("the container's process is there when the exit is told")
			}
		})
	}
}

// A signal sent while the pod ends is answered like one to a process that has
// ended, after its exit has been reported.
func TestKillWhileThePodEnds(t *testing.T) {
	p := newPod(t)
	c := p.run(sandboxID)
	stopping, stop := p.holdStop()
	p.exits(sandboxID, "", 5)
	await(t, "the machine's end", stopping)
	answer := make(chan error, 1)
	go func() { answer <- initOf(t, c).Kill(context.Background(), 9, true) }()
	close(stop)
	wantError(t, "Kill", await(t, "an answer", answer), errdefs.IsNotFound, "already finished")
	if status := statusOf(t, initOf(t, c)); status != 5 {
		t.Errorf("status %d", status)
	}
}
