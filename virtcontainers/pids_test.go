package virtcontainers_test

import (
	"errors"
	"testing"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/virtcontainers"
)

// The guest's pids are not those of host processes.
func TestPidsAreNobodyElses(t *testing.T) {
	p := newPod(t)
	c := p.run(sandboxID)
	p.start(p.exec(c, "e1"))
	list := c.Pids(t.Context())
	if len(list) != 2 || int(list[0].Pid) != c.PID() {
		t.Fatalf("processes %v, want first %d", list, c.PID())
	}
	const pidMaxLimit = 1 << 22
	if list[1].Pid <= pidMaxLimit || int32(list[1].Pid) < 0 {
		t.Errorf("the second has the number %d", list[1].Pid)
	}
}

// Of the guest's list only pids and the ids of known execs are passed on, and no
// more than 8192.
func TestPidsAreMadeOnTheHost(t *testing.T) {
	const guestPIDs, wantPIDs = 1_000_000_000, 8192
	p := newPod(t)
	c := p.run(sandboxID)
	p.start(p.exec(c, "e1"))
	details := func(execID string) *anypb.Any {
		packed, err := typeurl.MarshalAnyToProto(&runcoptions.ProcessDetails{ExecID: execID})
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	e1 := details("e1")
	withMore := details("e1")
	withMore.Value = append(withMore.Value, 0x7a, 2, 'x', 'x') // field 15
	strange := &tasktypes.ProcessInfo{Pid: 8}
	strange.ProtoReflect().SetUnknown([]byte{0x7a, 2, 'x', 'x'})
	tests := []struct{ from, want *tasktypes.ProcessInfo }{
		{&tasktypes.ProcessInfo{Pid: 8, Info: e1}, &tasktypes.ProcessInfo{Pid: guestPIDs + 8, Info: e1}},
		{&tasktypes.ProcessInfo{Pid: 8, Info: withMore}, &tasktypes.ProcessInfo{Pid: guestPIDs + 8, Info: e1}},
		{&tasktypes.ProcessInfo{Pid: 8, Info: details("none")}, &tasktypes.ProcessInfo{Pid: guestPIDs + 8}},
		{&tasktypes.ProcessInfo{Pid: 8, Info: details("")}, &tasktypes.ProcessInfo{Pid: guestPIDs + 8}},
		{&tasktypes.ProcessInfo{Pid: 8, Info: &anypb.Any{TypeUrl: "other", Value: e1.Value}}, &tasktypes.ProcessInfo{Pid: guestPIDs + 8}},
		{&tasktypes.ProcessInfo{Pid: 8, Info: &anypb.Any{TypeUrl: e1.TypeUrl, Value: []byte{0xff}}}, &tasktypes.ProcessInfo{Pid: guestPIDs + 8}},
		{&tasktypes.ProcessInfo{Pid: 1<<32 - 1}, &tasktypes.ProcessInfo{Pid: guestPIDs + (1<<32-1)%guestPIDs}},
		{strange, &tasktypes.ProcessInfo{Pid: guestPIDs + 8}},
	}
	var shown []*tasktypes.ProcessInfo
	for _, tt := range tests {
		shown = append(shown, tt.from)
	}
	for len(shown) < 3*wantPIDs {
		shown = append(shown, &tasktypes.ProcessInfo{Pid: uint32(len(shown)), Info: &anypb.Any{TypeUrl: "x", Value: make([]byte, 64)}})
	}
	p.host.Agent.ShowProcesses(shown)
	list := c.Pids(t.Context())
	if len(list) != 1+wantPIDs {
		t.Fatalf("%d processes, want %d", len(list), 1+wantPIDs)
	}
	for i, tt := range tests {
		if got := list[1+i]; !proto.Equal(got, tt.want) {
			t.Errorf("%v became %v, want %v", tt.from, got, tt.want)
		}
	}
	for _, p := range list[1+len(tests):] {
		if p.Info != nil {
			t.Fatalf("the guest's details of process %d were passed on", p.Pid)
		}
	}
}

// checkStandInAlone checks that a container's stand-in, and no other process, is
// listed, soon and whatever the engine's deadline.
func checkStandInAlone(t *testing.T, c *virtcontainers.Container) {
	t.Helper()
	began := time.Now()
	list := c.Pids(t.Context())
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it took %v", took)
	}
	if len(list) != 1 || int(list[0].Pid) != c.PID() || c.PID() == 0 {
		t.Errorf("processes %v, want %d alone", list, c.PID())
	}
}

// containerd 2.x asks when it starts, and drops a container of which no process is
// listed: the guest is not needed for that.
func TestPidsWithoutTheGuest(t *testing.T) {
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		p := newPod(t)
		c := p.run(sandboxID)
		p.host.Agent.Hang("Pids")
		checkStandInAlone(t, c)
	})
	t.Run("refused", func(t *testing.T) {
		p := newPod(t)
		c := p.run(sandboxID)
		for _, err := range []error{errdefs.ErrNotFound, errors.New("injected")} {
			p.host.Agent.Fail("Pids", err)
			checkStandInAlone(t, c)
		}
	})
	t.Run("asleep", func(t *testing.T) {
		s := newSleeper(t)
		s.sleeps()
		checkStandInAlone(t, s.container("c1"))
		s.checkAsleep()
	})
	t.Run("lost", func(t *testing.T) {
		p := newPod(t)
		c := p.run(sandboxID)
		stopping, stop := p.holdStop()
		p.host.Agent.EndEvents()
		await(t, "the machine's end", stopping)
		checkStandInAlone(t, c)
		close(stop)
		p.awaitStopped()
	})
}
