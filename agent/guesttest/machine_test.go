package guesttest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/container"
	"github.com/katabox/katabox/agent/forward"
	"github.com/katabox/katabox/agent/guest"
	"github.com/katabox/katabox/agent/iptables"
	"github.com/katabox/katabox/agent/service"
	"github.com/katabox/katabox/agent/stream"
)

// callTimeout bounds the wait of one step.
const callTimeout = 30 * time.Second

// machine is the guest as a host sees it.
type machine struct {
	task    taskapi.TTRPCTaskService
	guest   api.GuestClient
	streams string // the sockets' paths
	forward string

	mu      sync.Mutex
	events  []*api.Event
	changed *sync.Cond
}

// startMachine connects the agent's parts as its main does, on local sockets.
func startMachine(ctx context.Context, modules *guest.Modules) (*machine, error) {
	reaper := guest.NewReaper()
	pod := service.NewPod(service.Config{
		Runtime: service.LibRuntime{Runtime: &container.Runtime{StateDir: api.GuestRunDir + "/agent", Children: reaper, Confine: sync.OnceValue(confine), LoadModule: modules.Demand}},
		Mounter: guest.NewMounter(modules),
		Tables:  &iptables.Tools{Children: reaper, Dirs: iptables.Dirs},
		RunDir:  api.GuestRunDir,
	})
	if err := pod.PinNamespaces(); err != nil {
		return nil, err
	}
	rpc, err := net.Listen("unix", "/run/rpc")
	if err != nil {
		return nil, err
	}
	streams, err := net.Listen("unix", "/run/streams")
	if err != nil {
		return nil, err
	}
	forwarding, err := net.Listen("unix", "/run/forward")
	if err != nil {
		return nil, err
	}
	times := service.BootTimes{Serving: guest.SinceBoot()}
	for _, serve := range []func() error{
		func() error { reaper.Run(ctx); return nil },
		func() error { return (&stream.Server{Finder: pod}).Serve(ctx, streams) },
		func() error { return (&forward.Server{Sockets: pod}).Serve(ctx, forwarding) },
		func() error { return service.Serve(ctx, rpc, pod, times, guest.PowerOff) },
	} {
		go func() { fmt.Println("served until:", serve()) }()
	}
	return connect(ctx)
}

// confine calls container.RefuseVsock and reports how long it takes.
func confine() error {
	begin := time.Now()
	err := container.RefuseVsock()
	fmt.Println("AF_VSOCK is refused after", time.Since(begin))
	return err
}

func connect(ctx context.Context) (*machine, error) {
	conn, err := net.Dial("unix", "/run/rpc")
	if err != nil {
		return nil, err
	}
	client := ttrpc.NewClient(conn)
	m := &machine{task: taskapi.NewTTRPCTaskClient(client), guest: api.NewGuestClient(client), streams: "/run/streams", forward: "/run/forward"}
	m.changed = sync.NewCond(&m.mu)
	m.runEarly(ctx)
	_, err = m.guest.SetupSandbox(ctx, &api.SetupSandboxRequest{
		SandboxId: "pod", HostTime: timestamppb.Now(), Entropy: make([]byte, api.EntropyBytes), KernelModules: []string{"overlay"},
		Storages: []*api.Storage{{Driver: "tmpfs", Target: api.GuestRunDir + "/scratch", Options: []string{"size=1m", "noexec"}}},
	})
	if err == nil {
		_, err = m.guest.SetNetwork(ctx, &api.SetNetworkRequest{Hostname: "podname"})
	}
	if err != nil {
		return nil, err
	}
	events, err := m.guest.Events(ctx, &api.EventsRequest{}) // as the host, which has a pod then
	if err != nil {
		return nil, err
	}
	go m.listen(events)
	return m, nil
}

func (m *machine) listen(events api.Guest_EventsClient) {
	for {
		e, err := events.Recv()
		if err != nil {
			return
		}
		m.mu.Lock()
		m.events = append(m.events, e)
		m.changed.Broadcast()
		m.mu.Unlock()
	}
}

// exit waits for the exit of a process.
func (m *machine) exit(t *testing.T, id, execID string) *api.Exit {
	t.Helper()
	late := false
	defer time.AfterFunc(callTimeout, func() {
		m.mu.Lock()
		late = true
		m.changed.Broadcast()
		m.mu.Unlock()
	}).Stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	for !late {
		for _, e := range m.events {
			if x := e.GetExit(); x.GetContainerId() == id && x.GetExecId() == execID {
				return x
			}
		}
		m.changed.Wait()
	}
	t.Fatalf("no exit of %q %q", id, execID)
	return nil
}

// told lists the events of a container, as words.
func (m *machine) told(id string) (words []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		switch {
		case e.GetOom().GetContainerId() == id:
			words = append(words, "oom")
		case e.GetExit().GetContainerId() == id:
			words = append(words, "exit "+e.GetExit().GetExecId())
		}
	}
	return words
}

// bind opens a stream of a process.
func (m *machine) bind(t *testing.T, id, execID string, s api.Stream) *net.UnixConn {
	t.Helper()
	conn, err := net.Dial("unix", m.streams)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := api.WriteFrame(conn, &api.StreamOpen{ContainerId: id, ExecId: execID, Stream: s}); err != nil {
		t.Fatal(err)
	}
	var opened api.StreamOpened
	if err := api.ReadFrame(conn, &opened); err != nil || opened.GetError() != "" {
		t.Fatalf("bind %v: %v %s", s, err, opened.GetError())
	}
	return conn.(*net.UnixConn)
}

// output collects a stream until its end.
func (m *machine) output(t *testing.T, id, execID string, s api.Stream) <-chan string {
	t.Helper()
	conn, collected := m.bind(t, id, execID, s), make(chan string, 1)
	go func() {
		defer conn.Close()
		data, err := io.ReadAll(conn)
		if err != nil {
			data = append(data, err.Error()...)
		}
		collected <- string(data)
	}()
	return collected
}

func packed(t *testing.T, spec *specs.Spec, sharePID bool) *anypb.Any {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return packedConfig(t, &api.ContainerConfig{Spec: text, SharePidNamespace: sharePID})
}

func packedConfig(t *testing.T, config *api.ContainerConfig) *anypb.Any {
	t.Helper()
	value, err := proto.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return &anypb.Any{TypeUrl: api.ContainerConfigTypeURL, Value: value}
}

// result is how a process ended.
type result struct {
	out, errs string
	exit      *api.Exit
}

// finish starts a process, waits for its end and deletes it.
func (m *machine) finish(t *testing.T, id, execID string) result {
	t.Helper()
	out, errs := m.output(t, id, execID, api.Stream_STREAM_STDOUT), m.output(t, id, execID, api.Stream_STREAM_STDERR)
	if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: id, ExecID: execID}); err != nil {
		t.Fatal(err)
	}
	r := result{exit: m.exit(t, id, execID), out: <-out, errs: <-errs}
	if uint64(len(r.out)) != r.exit.GetStdoutBytes() || uint64(len(r.errs)) != r.exit.GetStderrBytes() {
		t.Errorf("%d and %d bytes came, the exit says %v", len(r.out), len(r.errs), r.exit)
	}
	if _, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: id, ExecID: execID}); err != nil {
		t.Error(err)
	}
	return r
}

// run runs a container to its end.
func (m *machine) run(t *testing.T, id string, spec *specs.Spec) result {
	t.Helper()
	_, err := m.task.Create(t.Context(), &taskapi.CreateTaskRequest{ID: id, Stdout: "y", Stderr: "y", Options: packed(t, spec, false)})
	if err != nil {
		t.Fatal(err)
	}
	return m.finish(t, id, "")
}

// exec runs a process in a container to its end.
func (m *machine) exec(t *testing.T, id, execID string, p *specs.Process) result {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.task.Exec(t.Context(), &taskapi.ExecProcessRequest{ID: id, ExecID: execID, Stdout: "y", Stderr: "y", Spec: &anypb.Any{Value: text}})
	if err != nil {
		t.Fatal(err)
	}
	return m.finish(t, id, execID)
}

// pause starts a container that waits, until the test ends.
func (m *machine) pause(t *testing.T, id string) {
	t.Helper()
	m.start(t, id, shell("trap 'exit 7' TERM; while :; do sleep 1000 & wait $!; done"))
}

// start starts a container that does not end by itself, until the test ends.
func (m *machine) start(t *testing.T, id string, spec *specs.Spec) {
	t.Helper()
	if _, err := m.task.Create(t.Context(), &taskapi.CreateTaskRequest{ID: id, Options: packed(t, spec, false)}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		_, _ = m.task.Kill(ctx, &taskapi.KillRequest{ID: id, Signal: 9})
		_, _ = m.task.Wait(ctx, &taskapi.WaitRequest{ID: id})
		if _, err := m.task.Delete(ctx, &taskapi.DeleteRequest{ID: id}); err != nil {
			t.Error(err)
		}
	})
}

// guestOnly skips a test outside of a guest.
func guestOnly(t *testing.T) *machine {
	t.Helper()
	if !inGuest() {
		t.Skip("runs in the guest, by TestInGuest")
	}
	return theMachine
}

// fileIn reads one of the guest's own files.
func fileIn(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

// fileOpen opens one of the guest's own files.
func fileOpen(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
