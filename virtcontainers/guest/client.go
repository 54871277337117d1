package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/prom"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

// Conn is a connection to the guest: a net.Conn that can be half-closed.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// DialFunc connects to a vsock port of the guest. It waits until the guest's
// driver is ready, and fails with syscall.ECONNREFUSED or ECONNRESET when
// nothing listens on the port, or too many connections wait there.
type DialFunc func(ctx context.Context, port uint32) (Conn, error)

// Client calls one guest's agent. Its methods may be called from several
// goroutines.
type Client struct {
	// Info is the agent's answer to Hello; Clock compares the clocks at that
	// moment.
	Info  *api.HelloResponse
	Clock timeline.Clock

	links links
	dial  DialFunc
	pass  Pass
	// calls are the durations of the calls so far.
	calls *prom.Durations
}

// dialPause is the time between two tries while the agent does not listen yet:
// short compared with a boot, long compared with the guest's cost of a refusal.
const dialPause = 5 * time.Millisecond

// Connect waits until the agent listens, and calls Hello. ctx bounds the wait;
// the caller ends it early when the VM dies.
func Connect(ctx context.Context, dial DialFunc) (*Client, error) {
	c := &Client{dial: dial, calls: new(prom.Durations)}
	first, err := c.newLink(ctx)
	if err != nil {
		return nil, err
	}
	c.links.now = first
	if c.Info, c.Clock, err = greetAgent(ctx, first); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Task returns what calls the guest's containers. Errors
// pass through Err. A call whose context has no deadline gets one.
func (c *Client) Task() task.TTRPCTaskService { return c.links.current().task }

func (c *Client) guest() api.GuestClient { return c.links.current().guest }

func dialUntilUp(ctx context.Context, dial DialFunc) (Conn, error) {
	for {
		conn, err := dial(ctx, api.PortRPC)
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNRESET) {
			return nil, fmt.Errorf("dial agent: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("dial agent: %w", context.Cause(ctx))
		case <-time.After(dialPause):
		}
	}
}

// greetAgent checks that the agent at the other end speaks this protocol. It
// returns its answer, and how the clocks compare.
func greetAgent(ctx context.Context, l *link) (*api.HelloResponse, timeline.Clock, error) {
	asked := time.Now()
	info, err := l.guest.Hello(ctx, &api.HelloRequest{ProtocolVersion: api.ProtocolVersion})
	if err != nil {
		return nil, timeline.Clock{}, fmt.Errorf("greet agent: %w", Err(err))
	}
	if info.ProtocolVersion != api.ProtocolVersion {
		return nil, timeline.Clock{}, fmt.Errorf("greet agent: it speaks version %d of the protocol, want %d: the guest image and the shim are of different releases",
			info.ProtocolVersion, api.ProtocolVersion)
	}
	return info, clockOf(asked, info.NowUs), nil
}

// Prepare lets containers run in a guest that has no pod, and mounts what they
// use. It gives the guest entropy, unless that becomes a template. An agent that
// cannot do this fails with errdefs.ErrNotImplemented, and leaves the guest as it is.
func (c *Client) Prepare(ctx context.Context, req *api.PrepareRequest) error {
	if !req.GetIsTemplate() {
		req.Entropy = entropy()
	}
	if _, err := c.guest().Prepare(ctx, req); err != nil {
		return fmt.Errorf("prepare guest: %w", Err(err))
	}
	return nil
}

// SetupSandbox makes the guest the pod's. It seeds the guest's random number
// generator with bytes drawn here. The host's time is read here too, as late as
// possible.
func (c *Client) SetupSandbox(ctx context.Context, req *api.SetupSandboxRequest) error {
	req.Entropy, req.HostTime = entropy(), timestamppb.Now()
	if _, err := c.guest().SetupSandbox(ctx, req); err != nil {
		return fmt.Errorf("set up guest: %w", Err(err))
	}
	return nil
}

// entropy draws what a guest's random number generator is seeded with.
func entropy() []byte {
	bytes := make([]byte, api.EntropyBytes)
	_, _ = rand.Read(bytes) // never fails (crypto/rand)
	return bytes
}

// maxChanges and maxChange bound an agent's list of its changes: their number,
// and the bytes of each.
const maxChanges, maxChange = 300, 256

// SetNetwork tells the guest the whole network it should have, and returns the
// agent's list of what it changed, bounded in length.
func (c *Client) SetNetwork(ctx context.Context, req *api.SetNetworkRequest) ([]string, error) {
	resp, err := c.guest().SetNetwork(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("set up the guest's network: %w", Err(err))
	}
	changes := resp.Changes[:min(len(resp.Changes), maxChanges)]
	for i, c := range changes {
		changes[i] = c[:min(len(c), maxChange)]
	}
	return changes, nil
}

// SetResources has the guest bring online the CPUs and the memory that its
// machine has now, and returns how much is in use.
func (c *Client) SetResources(ctx context.Context, cpus uint32, memoryMiB uint64) (*api.SetResourcesResponse, error) {
	resp, err := c.guest().SetResources(ctx, &api.SetResourcesRequest{Cpus: cpus, MemoryMib: memoryMiB})
	if err != nil {
		return nil, fmt.Errorf("online CPUs and memory: %w", Err(err))
	}
	return resp, nil
}

// LimitContainers sets how much memory, in bytes, and how many threads all containers
// together may use; 0 is no limit. An agent of an earlier version ignores that of threads.
func (c *Client) LimitContainers(ctx context.Context, memory, threads uint64) error {
	if _, err := c.guest().LimitContainers(ctx, &api.LimitContainersRequest{Memory: memory, Threads: threads}); err != nil {
		return fmt.Errorf("limit the pod's containers to %d bytes of memory and %d threads: %w", memory, threads, Err(err))
	}
	return nil
}

// AddStorages mounts what the pod's containers share; it leaves what is already
// mounted.
func (c *Client) AddStorages(ctx context.Context, storages []*api.Storage) error {
	if _, err := c.guest().AddStorages(ctx, &api.AddStoragesRequest{Storages: storages}); err != nil {
		return fmt.Errorf("mount in the guest: %w", Err(err))
	}
	return nil
}

// ChangeFiles changes files in the guest, in order; a request is at most
// api.MaxChangeFiles bytes long.
func (c *Client) ChangeFiles(ctx context.Context, changes []*api.FileChange) error {
	if _, err := c.guest().ChangeFiles(ctx, &api.ChangeFilesRequest{Changes: changes}); err != nil {
		return fmt.Errorf("copy files into the guest: %w", Err(err))
	}
	return nil
}

// ReadFile returns the end of a file that was copied into the guest, at most
// api.MaxReadFile bytes.
func (c *Client) ReadFile(ctx context.Context, path string) ([]byte, error) {
	resp, err := c.guest().ReadFile(ctx, &api.ReadFileRequest{Path: path, Bytes: api.MaxReadFile})
	if err != nil {
		return nil, fmt.Errorf("read a file of the guest: %w", Err(err))
	}
	if size := len(resp.GetContent()); size > api.MaxReadFile {
		return nil, fmt.Errorf("read a file of the guest: the answer has %d bytes, want at most %d", size, api.MaxReadFile)
	}
	return resp.GetContent(), nil
}

// GrowVolume has the guest make the file system that a storage has mounted as
// large as its disk, which has diskBytes by now.
func (c *Client) GrowVolume(ctx context.Context, target string, diskBytes uint64) error {
	if _, err := c.guest().GrowVolume(ctx, &api.GrowVolumeRequest{Target: target, DiskBytes: diskBytes}); err != nil {
		return fmt.Errorf("grow the file system in the guest: %w", Err(err))
	}
	return nil
}

// KeepMounts has the share's file systems that a container has mounted stay mounted
// in the guest until that ends.
func (c *Client) KeepMounts(ctx context.Context, id string) error {
	_, err := c.guest().KeepMounts(ctx, &api.KeepMountsRequest{ContainerId: id})
	if err != nil {
		return fmt.Errorf("keep mounts of container %s: %w", id, Err(err))
	}
	return nil
}

// PowerOff has the guest flush its disks and end. The answer is lost with the
// machine, unless it is an error.
func (c *Client) PowerOff(ctx context.Context) error {
	if _, err := c.guest().PowerOff(ctx, &api.PowerOffRequest{}); err != nil {
		return fmt.Errorf("power off guest: %w", Err(err))
	}
	return nil
}

// Ping checks that the agent answers.
func (c *Client) Ping(ctx context.Context) error {
	if _, err := c.guest().Hello(ctx, &api.HelloRequest{ProtocolVersion: api.ProtocolVersion}); err != nil {
		return fmt.Errorf("ping agent: %w", Err(err))
	}
	return nil
}

// Events calls handle for each event, in order, until the stream ends; it
// always returns an error, which says why. It goes on after Relink. handle must
// not block.
func (c *Client) Events(ctx context.Context, handle func(*api.Event)) error {
	l := c.links.current()
	for {
		next, err := c.links.after(ctx, l, l.events(ctx, handle))
		if next == nil {
			return err
		}
		l = next
	}
}

// events handles the events that come over one link.
func (l *link) events(ctx context.Context, handle func(*api.Event)) error {
	stream, err := l.guest.Events(ctx, &api.EventsRequest{})
	if err != nil {
		return fmt.Errorf("subscribe to guest events: %w", Err(err))
	}
	for {
		ev, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("read guest events: %w", Err(err))
		}
		handle(ev)
	}
}

// Close ends the connection. Calls under way fail, and what waits for Relink
// ends.
func (c *Client) Close() error {
	if err := c.links.close(); err != nil {
		return fmt.Errorf("close agent connection: %w", err)
	}
	return nil
}
