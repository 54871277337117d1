package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2/stats"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/ttrpc"
	"github.com/containerd/typeurl/v2"
	"github.com/mdlayher/vsock"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/katabox/katabox/agent/api"
)

// The sizes of the lies.
const (
	manyEvents      = 1_000_000
	manyConnections = 100_000
	manyPids        = 60_000
	manyCounters    = 60_000 // somewhat less than ttrpc's 4 MiB
	errorBytes      = 3 << 20
	consoleBytes    = 64 << 20
)

// liar answers the host instead of the agent. It passes calls of the Guest
// service that it does not lie about to the agent.
type liar struct {
	api.GuestClient

	lie     string
	starts  atomic.Int32
	latest  atomic.Value // string: the container that was started last
	told    atomic.Int64
	started chan struct{} // closed when a service container runs
}

// intercept answers a call, or lets the agent do it.
func (l *liar) intercept(ctx context.Context, decode ttrpc.Unmarshaler, info *ttrpc.UnaryServerInfo, method ttrpc.Method) (any, error) {
	call := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]
	switch {
	case l.lie == "ignore-kill" && call == "Kill":
		return &emptypb.Empty{}, nil
	case l.lie == "hang-kill" && call == "Kill", l.lie == "hang-delete" && call == "Delete", l.lie == "silent" && call == "Hello", l.hangs(info.FullMethod):
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if answer, huge, err := l.huge(call); huge {
		return answer, err
	}
	if call == "Start" {
		decode = l.noteStart(decode)
	}
	answer, err := method(ctx, decode)
	if call == "Start" && err == nil && l.starts.Add(1) == 2 {
		go l.begin()
	}
	return answer, err
}

// huge answers a call with much, if that is the lie.
func (l *liar) huge(call string) (answer any, huge bool, err error) {
	switch {
	case l.lie == "huge-stats" && call == "Stats":
		answer, err = hugeStats()
	case l.lie == "huge-pids" && call == "Pids":
		answer = hugePids()
	case l.lie == "huge-errors" && call == "Exec":
		err = errors.New(strings.Repeat("no ", errorBytes/3))
	}
	return answer, answer != nil || err != nil, err
}

func (l *liar) hangs(method string) bool {
	select {
	case <-l.started:
		return l.lie == "hang" && strings.Contains(method, "containerd.task")
	default:
		return false
	}
}

// toldFile has the number of messages of a flood.
const toldFile = "/proc/sys/kernel/poweroff_cmd"

// toldOnce counts, and shows the count now and then.
func (l *liar) toldOnce() {
	if n := l.told.Add(1); n%50 == 0 {
		_ = os.WriteFile(toldFile, strconv.AppendInt(nil, n, 10), 0) // the test misses it
	}
}

// begin is called when a container beside the pause container runs.
func (l *liar) begin() {
	time.Sleep(time.Second) // the answer goes out first
	close(l.started)
	switch l.lie {
	case "flood-console":
		l.floodConsole()
	case "connections":
		l.connect()
	}
}

func (l *liar) floodConsole() {
	console, err := os.OpenFile("/dev/console", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer console.Close()
	line := []byte(strings.Repeat("x", 1000) + "\n")
	for range consoleBytes / len(line) {
		if _, err := console.Write(line); err != nil {
			return
		}
		l.toldOnce()
	}
}

// connect calls ports of the host, 32 at a time.
func (l *liar) connect() {
	var group errgroup.Group
	group.SetLimit(32)
	for i := range uint32(manyConnections) {
		group.Go(func() error {
			conn, err := vsock.Dial(unix.VMADDR_CID_HOST, i%5000, nil)
			if err == nil {
				_ = conn.Close()
			}
			l.toldOnce()
			return nil
		})
	}
	_ = group.Wait()
}

func hugeStats() (*taskapi.StatsResponse, error) {
	metrics := &stats.Metrics{}
	for range manyCounters {
		metrics.Hugetlb = append(metrics.Hugetlb, &stats.HugeTlbStat{Current: 1 << 62, Max: 1 << 62, Pagesize: strings.Repeat("z", 30)})
	}
	packed, err := typeurl.MarshalAnyToProto(metrics)
	return &taskapi.StatsResponse{Stats: packed}, err
}

func hugePids() *taskapi.PidsResponse {
	answer := &taskapi.PidsResponse{}
	for i := range uint32(manyPids) {
		answer.Processes = append(answer.Processes, &tasktypes.ProcessInfo{
			Pid: i + 1<<30, Info: &anypb.Any{TypeUrl: "lie", Value: make([]byte, 40)},
		})
	}
	return answer
}

// mute is a listener whose connections are not answered once a container runs.
type mute struct {
	net.Listener
	from <-chan struct{}
}

// Accept implements net.Listener.
func (m mute) Accept() (net.Conn, error) {
	for {
		conn, err := m.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case <-m.from:
			go func() {
				defer conn.Close()
				_, _ = io.Copy(io.Discard, conn)
			}()
		default:
			return conn, nil
		}
	}
}

// endless is a listener whose connections do not end when they are closed.
type endless struct{ net.Listener }

// Accept implements net.Listener.
func (e endless) Accept() (net.Conn, error) {
	conn, err := e.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &trickle{Conn: conn}, nil
}

// trickle sends a byte now and then once it is closed.
type trickle struct {
	net.Conn
	once sync.Once
}

// CloseWrite does what Close does.
func (t *trickle) CloseWrite() error { return t.Close() }

// Close implements net.Conn.
func (t *trickle) Close() error {
	t.once.Do(func() {
		go func() {
			for {
				if _, err := io.WriteString(t.Conn, "."); err != nil {
					_ = t.Conn.Close()
					return
				}
				time.Sleep(1900 * time.Millisecond)
			}
		}()
	})
	return nil
}
