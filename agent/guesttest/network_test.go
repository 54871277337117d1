package guesttest

import (
	"context"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2/stats"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
)

// twoNICs gives the guest's NICs (host_test.go) other names than its kernel,
// which numbers them by slot.
func twoNICs() *api.SetNetworkRequest {
	return &api.SetNetworkRequest{
		Hostname: "podname",
		Interfaces: []*api.Interface{
			{PciPath: "01/1e", Name: "eth0", Mac: []byte{0x52, 0x54, 0, 0, 0, 0}, Mtu: 1400, Addresses: []*api.Address{{Prefix: "10.0.0.15/24"}, {Prefix: "fd00::15/64"}}},
			{PciPath: "01/02", Name: "eth1", Mac: []byte{0x52, 0x54, 0, 0, 0, 9}, Mtu: 1450, Addresses: []*api.Address{{Prefix: "10.0.1.15/32"}}},
		},
		Routes: []*api.Route{
			{Interface: "eth0", Destination: "0.0.0.0/0", Gateway: "10.0.0.2"},
			{Interface: "eth0", Destination: "::/0", Gateway: "fd00::2"},
			{Interface: "eth1", Destination: "10.0.1.0/24", Scope: 253},
		},
	}
}

// setNetwork sets the network twice; the second time must change nothing.
func (m *machine) setNetwork(t *testing.T, want *api.SetNetworkRequest) {
	t.Helper()
	// The test's context has already ended here.
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	began := time.Now()
	first, err := m.guest.SetNetwork(ctx, want)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v for %q", time.Since(began), first.GetChanges())
	if again, err := m.guest.SetNetwork(ctx, want); err != nil || len(again.GetChanges()) != 0 {
		t.Errorf("the second time: %q, %v", again.GetChanges(), err)
	}
}

func TestGuestNetwork(t *testing.T) {
	m := guestOnly(t)
	t.Cleanup(func() { m.setNetwork(t, &api.SetNetworkRequest{Hostname: "podname"}) })
	want := twoNICs()
	m.setNetwork(t, want)
	m.pause(t, "net")
	fetch := "nc 10.0.0.100 80; nc 10.0.1.100 80"
	if r := m.exec(t, "net", "fetch", process(fetch)); r.out != "net0\nnet1\n" {
		t.Errorf("%+v", r)
	}
	r := m.exec(t, "net", "show", process("ip -o addr; ip route; ip -6 route; ip link"))
	for _, words := range []string{
		"inet 10.0.0.15/24 ", "inet6 fd00::15/64 ", "inet 10.0.1.15/32 ", "default via 10.0.0.2 dev eth0", "default via fd00::2 dev eth0",
		"52:54:00:00:00:00", "52:54:00:00:00:09", "mtu 1400", "mtu 1450",
	} {
		if !strings.Contains(r.out, words) {
			t.Errorf("a container sees no %q in\n%s", words, r.out)
		}
	}
	for line := range strings.Lines(r.out) {
		if strings.Contains(line, "fd00::15") && strings.Contains(line, "tentative") {
			t.Errorf("an address that cannot be used yet: %s", line)
		}
	}
	m.counts(t, "net", "eth0", "eth1")

	// Links that are up change their names.
	want.Interfaces[0].Name, want.Interfaces[1].Name = "eth1", "net1"
	want.Routes[0].Interface, want.Routes[1].Interface, want.Routes[2].Interface = "eth1", "eth1", "net1"
	m.setNetwork(t, want)
	if r := m.exec(t, "net", "again", process(fetch)); r.out != "net0\nnet1\n" {
		t.Errorf("%+v", r)
	}
	m.counts(t, "net", "eth1", "net1")

	want.Interfaces[0].Mtu = 9000
	_, err := m.guest.SetNetwork(t.Context(), want)
	if err == nil || !strings.Contains(err.Error(), "interface eth1: set MTU 9000, it has 1400 and takes 68 to 1450") {
		t.Error(err)
	}
}

// counts checks that a container's stats count these interfaces, with traffic
// in both directions on each.
func (m *machine) counts(t *testing.T, id string, names ...string) {
	t.Helper()
	resp, err := m.task.Stats(t.Context(), &taskapi.StatsRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	var metrics stats.Metrics
	if err := proto.Unmarshal(resp.GetStats().GetValue(), &metrics); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range metrics.GetNetwork() {
		got = append(got, n.GetName())
		if n.GetRxBytes() == 0 || n.GetTxBytes() == 0 {
			t.Errorf("%v has carried nothing", n)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, names) {
		t.Errorf("interfaces %q are counted, want %q", got, names)
	}
}

func TestGuestHostname(t *testing.T) {
	m := guestOnly(t)
	m.pause(t, "named")
	for _, name := range []string{"renamed", "podname"} {
		resp, err := m.guest.SetNetwork(t.Context(), &api.SetNetworkRequest{Hostname: name})
		if err != nil || !slices.Equal(resp.GetChanges(), []string{"hostname set to " + name}) {
			t.Errorf("%q, %v", resp.GetChanges(), err)
		}
		if r := m.exec(t, "named", "host", process("hostname")); r.out != name+"\n" {
			t.Errorf("a container that was there is called %q, want %q", r.out, name)
		}
		if r := m.run(t, "new", shell("hostname")); r.out != name+"\n" {
			t.Errorf("a new container is called %q, want %q", r.out, name)
		}
		m.forget("new")
		m.forget("named")
	}
	_, err := m.guest.SetNetwork(t.Context(), &api.SetNetworkRequest{Hostname: strings.Repeat("h", 65)})
	if !errdefs.IsInvalidArgument(errgrpc.ToNative(err)) {
		t.Error(err)
	}
}

func TestGuestForward(t *testing.T) {
	m := guestOnly(t)
	if _, refusal := m.dial(t, "127.0.0.1:8080"); !strings.Contains(refusal, "connection refused") {
		t.Errorf("without a listener: %q", refusal)
	}
	if _, err := m.task.Create(t.Context(), &taskapi.CreateTaskRequest{ID: "server", Options: packed(t, shell("nc -l -p 8080 -e cat"), false)}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: "server"}); err != nil {
		t.Fatal(err)
	}
	conn, refusal := m.dial(t, "127.0.0.1:8080")
	for deadline := time.Now().Add(callTimeout); refusal != "" && time.Now().Before(deadline); {
		conn, refusal = m.dial(t, "127.0.0.1:8080")
	}
	if refusal != "" {
		t.Fatal(refusal)
	}
	data := strings.Repeat("0123456789abcdef", 1<<14)
	go func() {
		_, _ = io.WriteString(conn, data)
		_ = conn.CloseWrite()
	}()
	if got, err := io.ReadAll(conn); err != nil || string(got) != data {
		t.Errorf("%d bytes came back of %d, %v", len(got), len(data), err)
	}
	m.exit(t, "server", "")
	if _, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: "server"}); err != nil {
		t.Error(err)
	}
}

// A container's UNIX socket is looked up below its root, with its mounts; the
// agent's sockets are not found.
func TestGuestForwardToASocket(t *testing.T) {
	m := guestOnly(t)
	spec := shell("ln -s ../../../../run/rpc /run/out; echo made; exec sleep 1000")
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/run", Type: "tmpfs", Source: "tmpfs"})
	m.start(t, "sockets", spec)
	m.exec(t, "sockets", "await", process("until test -L /run/out; do sleep 0.1; done"))
	if _, err := os.Stat("/run/rpc"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/run/none":            "no such file or directory",
		"/run/rpc":             "no such file or directory",
		"/run/out":             "no such file or directory",
		"/proc/1/root/run/rpc": "too many levels of symbolic links",
		"/bin":                 "is not a UNIX socket",
	} {
		if _, refusal := m.ask(t, &api.ForwardOpen{Unix: &api.ContainerSocket{ContainerId: "sockets", Path: path}}); !strings.Contains(refusal, want) {
			t.Errorf("%s: %q, want %q", path, refusal, want)
		}
	}
	if _, refusal := m.ask(t, &api.ForwardOpen{Unix: &api.ContainerSocket{ContainerId: "absent", Path: "/run/rpc"}}); !strings.Contains(refusal, "not found") {
		t.Errorf("no such container: %q", refusal)
	}
}

// dial opens a forwarding connection and returns the agent's refusal, if any.
func (m *machine) dial(t *testing.T, address string) (*net.UnixConn, string) {
	t.Helper()
	return m.ask(t, &api.ForwardOpen{Address: address})
}

func (m *machine) ask(t *testing.T, open *api.ForwardOpen) (*net.UnixConn, string) {
	t.Helper()
	conn, err := net.Dial("unix", m.forward)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(callTimeout))
	if err := api.WriteFrame(conn, open); err != nil {
		t.Fatal(err)
	}
	var opened api.ForwardOpened
	if err := api.ReadFrame(conn, &opened); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.UnixConn), opened.GetError()
}
