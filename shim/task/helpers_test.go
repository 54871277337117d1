package task_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	eventtypes "github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/shim/shimtest/files"
	"github.com/katabox/katabox/shim/task"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

func TestMain(m *testing.M) {
	log.L.Logger.SetLevel(logrus.PanicLevel)
	goleak.VerifyTestMain(m)
}

const (
	patience  = 20 * time.Second
	sandboxID = "pod"
)

var errInjected = errors.New("injected")

// publisher records events as text, without times: "exit pod/e1=0".
type publisher struct {
	mu      sync.Mutex // guards what follows
	events  []string
	changed chan struct{}
}

func (p *publisher) Publish(_ context.Context, topic string, event proto.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, strings.TrimPrefix(topic, "/tasks/")+" "+describe(event))
	close(p.changed)
	p.changed = make(chan struct{})
}

func describe(event proto.Message) string {
	switch e := event.(type) {
	case *eventtypes.TaskExit:
		name := e.ContainerID
		if e.ID != e.ContainerID {
			name += "/" + e.ID
		}
		return fmt.Sprintf("%s=%d", name, e.ExitStatus)
	case *eventtypes.TaskDelete:
		return fmt.Sprintf("%s=%d", e.ContainerID, e.ExitStatus)
	case interface {
		GetContainerID() string
		GetExecID() string
	}:
		return e.GetContainerID() + "/" + e.GetExecID()
	case interface{ GetContainerID() string }:
		return e.GetContainerID()
	}
	return fmt.Sprintf("%T", event)
}

func (p *publisher) list() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events)
}

// await waits for an event.
func (p *publisher) await(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		p.mu.Lock()
		changed, got := p.changed, slices.Clone(p.events)
		p.mu.Unlock()
		if slices.Contains(got, want) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("event %q does not come: %v", want, got)
		}
	}
}

// shim is a service behind a socket.
type shim struct {
	taskapi.TTRPCTaskService
	client  *ttrpc.Client
	service *task.Service
	host    *fakeguest.Host
	events  *publisher
	exits   atomic.Int32
}

// newShim serves the task API on its own host and checks, when the test ends,
// that nothing is left. change, if not nil, changes the service's options.
func newShim(t *testing.T, change func(*task.Options)) *shim {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("sandboxes mount, which needs root")
	}
	dir, err := os.MkdirTemp("", "kb") //nolint:usetesting // t.TempDir gives names too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	files.Configure(t, "")
	s := &shim{host: fakeguest.New(dir), events: &publisher{changed: make(chan struct{})}}
	opts := task.Options{
		ID: sandboxID, Namespace: "test", Platform: s.host.Platform(), Publisher: s.events,
		Exit: func() { s.exits.Add(1) },
	}
	if change != nil {
		change(&opts)
	}
	s.service = task.New(opts)
	s.serve(t, filepath.Join(dir, "shim.sock"))
	t.Cleanup(func() {
		s.checkStopped(t)
		if err := s.host.Clear(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// serve connects a client to the service.
func (s *shim) serve(t *testing.T, socket string) {
	t.Helper()
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	task.Register(server, s.service)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(context.Background(), l)
	}()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s.client = ttrpc.NewClient(conn)
	s.TTRPCTaskService = taskapi.NewTTRPCTaskClient(s.client)
	t.Cleanup(func() {
		_, _ = s.client.Close(), server.Close()
		<-served
	})
}

func (s *shim) checkStopped(t *testing.T) {
	t.Helper()
	if err := s.service.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	left, err := s.host.Leftovers()
	if err != nil {
		t.Error(err)
	}
	for _, what := range left {
		t.Errorf("left: %s", what)
	}
}

// bundle makes a bundle with those annotations, given as key and value.
func (s *shim) bundle(t *testing.T, id string, annotations ...string) string {
	t.Helper()
	dir := filepath.Join(s.host.RunDir, "bundles", id)
	m := make(map[string]string)
	for i := 0; i+1 < len(annotations); i += 2 {
		m[annotations[i]] = annotations[i+1]
	}
	if err := fakeguest.WriteBundle(dir, m); err != nil {
		t.Fatal(err)
	}
	return dir
}

// request returns a request to create a container: the sandbox's own, or one of
// its service containers.
func (s *shim) request(t *testing.T, id string) *taskapi.CreateTaskRequest {
	t.Helper()
	if id == sandboxID {
		return &taskapi.CreateTaskRequest{ID: id, Bundle: s.bundle(t, id, "io.kubernetes.cri.container-type", "sandbox")}
	}
	return &taskapi.CreateTaskRequest{ID: id, Bundle: s.bundle(t, id,
		"io.kubernetes.cri.container-type", "container", "io.kubernetes.cri.sandbox-id", sandboxID)}
}

func (s *shim) create(t *testing.T, id string) *taskapi.CreateTaskResponse {
	t.Helper()
	resp, err := s.Create(t.Context(), s.request(t, id))
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func (s *shim) run(t *testing.T, id string) {
	t.Helper()
	s.create(t, id)
	if _, err := s.Start(t.Context(), &taskapi.StartRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
}

func (s *shim) exit(t *testing.T, id, execID string, status uint32) {
	t.Helper()
	if err := s.host.Agent.Exit(id, execID, status); err != nil {
		t.Fatal(err)
	}
}

// wantError fails the test unless err, which came over the wire, is of that kind
// and contains text.
func wantError(t *testing.T, what string, err error, is func(error) bool, text string) {
	t.Helper()
	if err == nil || !is(errgrpc.ToNative(err)) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got error %v, want one of another kind, naming %q", what, err, text)
	}
}
