package virtcontainers

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/sizing"
)

// noIO is no stdio at all.
type noIO struct{}

func (noIO) Streams() Streams                      { return Streams{} }
func (noIO) Connect(Conns) error                   { return nil }
func (noIO) Drain(context.Context, uint64, uint64) {}
func (noIO) Await(context.Context, uint64, uint64) {}
func (noIO) HoldStdin() error                      { return nil }
func (noIO) Park(context.Context) (uint64, bool, error) {
	return 0, false, nil
}
func (noIO) Rebind(Conns) error { return nil }
func (noIO) CloseStdin()        {}
func (noIO) Close()             {}

func (noIO) AwaitEnds(context.Context) {}

// tally records what it observes.
type tally struct {
	mu    sync.Mutex
	exits []Exit
	ooms  int
}

func (o *tally) Exited(e Exit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.exits = append(o.exits, e)
}

func (o *tally) Ending(string) {}

func (o *tally) OutOfMemory(string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ooms++
}

// newQuietSandbox is a sandbox without a guest: a container c1 that runs, with
// an exec e1 that was not started.
func newQuietSandbox(f testing.TB, o Observer) *Sandbox {
	vm, err := new(fake.Monitor).Launch(context.Background(), hypervisor.Spec{})
	if err != nil {
		f.Fatal(err)
	}
	quiet := logrus.New()
	quiet.SetLevel(logrus.PanicLevel)
	size, err := sizing.New(context.Background(), sizing.Options{Config: new(config.Config)})
	if err != nil {
		f.Fatal(err)
	}
	s := &Sandbox{
		ID: "pod", machine: machine{vm: vm}, sizing: size, observer: o, stopped: make(chan struct{}),
		lifeCtx: log.WithLogger(context.Background(), logrus.NewEntry(quiet)),
	}
	c := &Container{ID: "c1", sandbox: s, created: make(chan struct{}), ended: make(chan struct{}), execs: make(map[string]*Process), files: new(guestfs.Container)}
	close(c.created)
	c.init = newProcess(c, "", false, noIO{})
	c.init.state = Running
	c.init.openGate()
	c.execs["e1"] = newProcess(c, "e1", false, noIO{})
	s.containers = map[string]*Container{c.ID: c}
	return s
}

// Whatever events a guest sends, each process exits at most once, with a valid
// status and a time that is not in the future.
func FuzzEvents(f *testing.F) {
	for _, ev := range []*api.Event{
		{Event: &api.Event_Exit{Exit: &api.Exit{ContainerId: "c1", Status: 1 << 20, ExitedAt: timestamppb.Now()}}},
		{Event: &api.Event_Exit{Exit: &api.Exit{ContainerId: "c1", ExecId: "e1", StdoutBytes: 1 << 60}}},
		{Event: &api.Event_Exit{Exit: &api.Exit{ContainerId: "c2", ExitedAt: &timestamppb.Timestamp{Nanos: -1}}}},
		{Event: &api.Event_Oom{Oom: &api.OOM{ContainerId: "c1"}}},
		{},
	} {
		data, err := proto.Marshal(ev)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, times uint8) {
		ev := new(api.Event)
		if proto.Unmarshal(data, ev) != nil {
			return
		}
		o := new(tally)
		s := newQuietSandbox(t, o)
		for range times {
			s.handleEvent(ev)
		}
		s.watchers.Wait()
		if len(o.exits) > 1 || o.ooms > int(times) {
			t.Errorf("%d exits and %d OOMs of %d events", len(o.exits), o.ooms, times)
		}
		for _, e := range o.exits {
			if e.ContainerID != "c1" || e.ExecID != "" || e.Status > 255 || e.At.After(time.Now()) {
				t.Errorf("exit %+v", e)
			}
		}
	})
}
