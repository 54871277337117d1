package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
	podns "github.com/katabox/katabox/virtcontainers/netns"
)

// Clones are pods that start from one template, some concurrently. All have the
// same addresses, each in its own network. So values that the kernel derives
// from addresses, ports and secrets differ only if the secrets do.
const (
	clones     = 8
	cloneBatch = 2
	cloneIP    = "10.88.0.2"
	clonePeer  = "10.88.0.1"
)

// The ports of the clones' connections, which have no listeners. From each of
// the fixed ports there are two connections to closedPort, and from ports that
// the guest chooses one to each of the ports after closedPort.
var fixedPorts = []uint16{40001, 40002, 40003, 40004}

const (
	closedPort  = 9
	chosenPorts = 4
	// cloneTimeout bounds one pod.
	cloneTimeout = 3 * time.Minute
)

// connections returns the arguments of the probe that makes all those
// connections.
func connections() []string {
	args := []string{"/probe/probe", "ports", clonePeer}
	for _, p := range fixedPorts {
		pair := fmt.Sprintf("%d:%d", p, closedPort)
		args = append(args, pair, pair)
	}
	for i := range chosenPorts {
		args = append(args, fmt.Sprintf("0:%d", closedPort+1+i))
	}
	return args
}

// drawCommand prints the guest's other random values, a name and a value in
// each line.
const drawCommand = `
	echo "getrandom $(od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n')"
	echo "uuid $(cat /proc/sys/kernel/random/uuid)"
	echo "boot_id $(cat /proc/sys/kernel/random/boot_id)"
	echo "mac $(cat /sys/class/net/eth0/address)"
	echo "linklocal $(awk '$6 == "eth0" && $4 == "20" { print $1 }' /proc/net/if_inet6)"
	echo "stable $(cat /proc/sys/net/ipv6/conf/default/stable_secret 2>/dev/null)"`

// clone is what was seen of one pod.
type clone struct {
	drawn map[string]string
	// chosen are the ports that its guest chose for connections.
	chosen string
	// isns are the sequence numbers of the first connections from fixedPorts,
	// less the clock that is part of them; again are those of the second
	// connections.
	isns, again []uint32
}

// Eight pods that start from one template draw different random numbers,
// identifiers, ports and TCP sequence numbers.
func TestClones(t *testing.T) {
	needVM(t)
	ctx, d := begin(t)
	useTemplate(t, d, "")
	mark := d.LogSize()
	all := make([]clone, clones)
	for first := 0; first < clones; first += cloneBatch {
		var batch sync.WaitGroup
		for i := first; i < first+cloneBatch; i++ {
			batch.Go(func() {
				var err error
				if all[i], err = cloneOne(ctx, d); err != nil {
					t.Errorf("pod %d: %v", i, err)
				}
			})
		}
		batch.Wait()
	}
	if t.Failed() {
		return
	}
	if n := strings.Count(d.LogSince(mark, 100000), `template= `); n != 0 {
		t.Errorf("%d pods did not come from the template", n)
	}
	compareClones(t, all)
}

// useTemplate has the daemon's pods start from a template, which it makes. config is
// more of the configuration.
func useTemplate(t *testing.T, d *harness.Daemon, config string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "templates")
	configure(t, d, fmt.Sprintf("%s[factory]\nenable_template = true\ntemplate_path = %q\n", config, dir))
	factory := func(command string) {
		out, err := exec.Command(filepath.Join(bed.layout.Bin(), "kata-runtime"), "factory", command, "--config", d.KataConfigPath()).CombinedOutput()
		if err != nil {
			t.Errorf("kata-runtime factory %s: %v: %s", command, err, out)
		}
	}
	t.Cleanup(func() { factory("destroy") })
	factory("init")
}

func compareClones(t *testing.T, all []clone) {
	t.Helper()
	for i, c := range all {
		if !sameSequence(c.isns, c.again) {
			t.Errorf("pod %d: one secret gives %x and %x: the comparison proves nothing", i, c.isns, c.again)
		}
		for j, other := range all[:i] {
			if sameSequence(c.isns, other.isns) {
				t.Errorf("pods %d and %d have one secret for TCP sequence numbers: %x and %x", j, i, other.isns, c.isns)
			}
			if c.chosen == other.chosen {
				t.Errorf("pods %d and %d chose the same ports for connections: %s", j, i, c.chosen)
			}
			for name, value := range c.drawn {
				if value == other.drawn[name] && value != "" {
					t.Errorf("pods %d and %d have the same %s: %s", j, i, name, value)
				}
			}
		}
		for _, name := range []string{"bound", "getrandom", "uuid", "boot_id", "mac", "linklocal"} {
			if c.drawn[name] == "" {
				t.Errorf("pod %d has no %s", i, name)
			}
		}
		if stable := c.drawn["stable"]; stable != "" {
			t.Errorf("pod %d has a secret for stable IPv6 addresses, which it did not draw: %s", i, stable)
		}
	}
	t.Logf("the first: %+v", all[0])
}

// sameSequence reports whether the sequence numbers of the same ports derive
// from one secret. Then they differ only by the offset of the guests' clocks
// and the packets' delays, together less than a second. With two secrets the
// chance is one in a hundred for each port.
func sameSequence(a, b []uint32) bool {
	const second = int32(time.Second >> isnClock)
	for i := range a {
		if d := int32(a[i] - b[i]); d > second || d < -second {
			return false
		}
	}
	return true
}

// isnClock is the shift with which the kernel's net/core/secure_seq.c
// (seq_scale) adds the time, in nanoseconds, to a sequence number.
const isnClock = 6

// cloneOne runs a pod in a network that has only the pod and a peer, and
// inspects the packets that the peer receives.
func cloneOne(ctx context.Context, d *harness.Daemon) (c clone, err error) {
	ctx, cancel := context.WithTimeout(ctx, cloneTimeout)
	defer cancel()
	ns, remove, err := twoNetns(d)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	packets, err := tapOf(ns[1])
	if err != nil {
		return c, err
	}
	defer unix.Close(packets)
	box, err := d.Create(ctx, harness.ContainerConfig{Name: "clone", Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{harness.InNetns(ns[0]), withProbe()}})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, box.Remove(context.WithoutCancel(ctx))) }()
	if err := box.Start(ctx); err != nil {
		return c, err
	}
	c.drawn = make(map[string]string)
	bound, err := runIn(ctx, box, connections()...)
	if err != nil {
		return c, err
	}
	drawn, err := runIn(ctx, box, "sh", "-c", drawCommand)
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(bound + drawn) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		c.drawn[name] = value
	}
	return c, c.readPackets(packets)
}

// twoNetns makes a network of two namespaces: the pod's and its peer's.
func twoNetns(d *harness.Daemon) (ns [2]harness.Netns, remove func() error, err error) {
	var made []harness.Netns
	remove = func() error {
		var errs []error
		for _, n := range made {
			errs = append(errs, n.Remove())
		}
		return errors.Join(errs...)
	}
	for i := range ns {
		if ns[i], err = d.NewNetns(); err != nil {
			return ns, nil, errors.Join(err, remove())
		}
		made = append(made, ns[i])
	}
	for _, c := range []struct {
		in       harness.Netns
		commands string
	}{
		{ns[1], "ip link add peer type veth peer name eth0 netns " + string(ns[0]) + "; ip addr add " + clonePeer + "/24 dev peer; ip link set peer up"},
		{ns[0], "ip addr add " + cloneIP + "/24 dev eth0; ip link set eth0 up"},
	} {
		if _, err := c.in.Run("sh", "-ec", c.commands); err != nil {
			return ns, nil, errors.Join(err, remove())
		}
	}
	return ns, remove, nil
}

// tapOf opens a socket that receives all packets of a namespace from now on,
// each with its time of arrival.
func tapOf(ns harness.Netns) (fd int, err error) {
	f, err := podns.Open(string(ns))
	if err != nil {
		return -1, err
	}
	defer f.Close()
	err = podns.Do(f, func() (err error) {
		const allIP = unix.ETH_P_IP>>8 | unix.ETH_P_IP&0xff<<8 // in network byte order (packet(7))
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, allIP)
		return err
	})
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// readPackets finds the guest's SYNs among the packets.
func (c *clone) readPackets(fd int) error {
	first, second := make(map[uint16]uint32), make(map[uint16]uint32)
	raw := make(map[uint16]uint32) // of the first SYN, to recognize its retransmissions
	chosen := make(map[uint16]uint16)
	for {
		s, err := nextSYN(fd)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return err
		}
		if s.to != closedPort {
			chosen[s.to] = s.from
			continue
		}
		isn := s.seq - uint32(s.at>>isnClock)
		if before, again := raw[s.from]; !again {
			raw[s.from], first[s.from] = s.seq, isn
		} else if _, third := second[s.from]; s.seq != before && !third {
			second[s.from] = isn
		}
	}
	for _, p := range fixedPorts {
		c.isns, c.again = append(c.isns, first[p]), append(c.again, second[p])
	}
	if len(first) != len(fixedPorts) || len(second) != len(fixedPorts) || len(chosen) != chosenPorts {
		return fmt.Errorf("the peer saw connections from %v, again %v, and %v", first, second, chosen)
	}
	ports := make([]string, 0, len(chosen))
	for to, from := range chosen {
		ports = append(ports, fmt.Sprintf("%d to %d", from, to))
	}
	slices.Sort(ports)
	c.chosen = strings.Join(ports, ", ")
	return nil
}

// syn is a request for a connection.
type syn struct {
	from, to uint16
	seq      uint32
	at       int64 // time of arrival, in nanoseconds since 1970
}

// nextSYN returns the next SYN from cloneIP, or EAGAIN if there are no more.
func nextSYN(fd int) (syn, error) {
	packet, control := make([]byte, 2048), make([]byte, 256)
	for {
		n, clen, _, _, err := unix.Recvmsg(fd, packet, control, 0)
		if err != nil {
			return syn{}, err
		}
		// RFC 791 and RFC 9293; a SYN and nothing else.
		ip := packet[:n]
		if n < 40 || ip[9] != unix.IPPROTO_TCP || fmt.Sprintf("%d.%d.%d.%d", ip[12], ip[13], ip[14], ip[15]) != cloneIP {
			continue
		}
		tcp := ip[int(ip[0]&0xf)*4:]
		if len(tcp) < 20 || tcp[13]&0x3f != 0x02 {
			continue
		}
		at, err := stampOf(control[:clen])
		return syn{binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:]), binary.BigEndian.Uint32(tcp[4:]), at}, err
	}
}

func stampOf(control []byte) (int64, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return int64(binary.NativeEndian.Uint64(m.Data))*int64(time.Second) + int64(binary.NativeEndian.Uint64(m.Data[8:])), nil
		}
	}
	return 0, errors.New("a packet without a time")
}
