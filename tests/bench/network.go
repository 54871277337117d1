package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

const (
	iperf = "/usr/bin/iperf3"
	// throughputRounds is how often each throughput is measured, and
	// throughputSeconds how long each time.
	throughputRounds  = 3
	throughputSeconds = 3
)

// throughput is the TCP throughput, in Mbit/s, between a process on the host
// and another one: in a guest behind a veth, in a namespace behind a veth, and
// in a guest of the same QEMU on a bare TAP device.
type throughput struct {
	// toHost and fromHost are the directions as the guest sees them.
	toHost, fromHost places
}

type places struct{ guest, plain, bare series }

// iperfReport is the part of iperf3's JSON that is used.
type iperfReport struct {
	End struct {
		Received struct {
			BitsPerSecond float64 `json:"bits_per_second"`
		} `json:"sum_received"`
	} `json:"end"`
	Error string `json:"error"`
}

// mbits reads iperf3's report.
func mbits(report string) (float64, error) {
	var r iperfReport
	if err := json.Unmarshal([]byte(report), &r); err != nil {
		return 0, fmt.Errorf("read iperf3's report %.200q: %w", report, err)
	}
	if r.Error != "" || r.End.Received.BitsPerSecond == 0 {
		return 0, fmt.Errorf("iperf3 measured nothing: %q", r.Error)
	}
	return r.End.Received.BitsPerSecond / 1e6, nil
}

// wires are two equal veths from the server's namespace, to a pod's namespace
// and to a plain one.
type wires struct {
	server, pod, plain harness.Netns
}

// The server's addresses on both.
const (
	podWire   = "10.76.1"
	plainWire = "10.76.2"
)

// layWires makes the namespaces; the caller removes them, even after an error.
func layWires(d *harness.Daemon) (w wires, err error) {
	for _, ns := range []*harness.Netns{&w.server, &w.pod, &w.plain} {
		if *ns, err = d.NewNetns(); err != nil {
			return w, err
		}
	}
	for _, end := range []struct {
		ns        harness.Netns
		name, net string
	}{{w.pod, "pod0", podWire}, {w.plain, "plain0", plainWire}} {
		script := fmt.Sprintf("ip link add %[1]s type veth peer name eth0 netns %[2]s\n"+
			"ip addr add %[3]s.1/24 dev %[1]s\nip link set %[1]s up\n"+
			"nsenter --net=%[2]s sh -ec 'ip addr add %[3]s.2/24 dev eth0; ip link set eth0 up'", end.name, end.ns, end.net)
		if _, err := w.server.Run("sh", "-ec", script); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (w wires) remove() error {
	var errs []error
	for _, ns := range []harness.Netns{w.server, w.pod, w.plain} {
		if ns != "" {
			errs = append(errs, ns.Remove())
		}
	}
	return errors.Join(errs...)
}

// measureThroughput runs iperf3's server on the host, and its client
// alternately in a guest and in a plain namespace.
func measureThroughput(ctx context.Context, d *harness.Daemon) (_ *throughput, err error) {
	w, err := layWires(d)
	defer func() { err = errors.Join(err, w.remove()) }()
	if err != nil {
		return nil, err
	}
	tools, err := staged(iperf)
	defer func() { err = errors.Join(err, os.RemoveAll(tools)) }()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop, err := startServer(ctx, w.server)
	if err != nil {
		return nil, err
	}
	defer stop()

	c, err := d.Create(ctx, harness.ContainerConfig{
		Name: "iperf", Args: []string{"sleep", "1000"}, Spec: []oci.SpecOpts{harness.InNetns(w.pod), withTools(tools)},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Remove(context.WithoutCancel(ctx))) }()
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	args, err := podMachine(d)
	if err != nil {
		return nil, err
	}
	bare, err := startBareNetwork(ctx, d, w.server, args, tools)
	if err != nil {
		return nil, err
	}
	defer bare.close()
	t := &throughput{}
	return t, t.measure(ctx, c, w.plain, bare)
}

// podMachine returns the command line of the only pod's QEMU.
func podMachine(d *harness.Daemon) ([]string, error) {
	procs, err := d.Processes()
	if err != nil {
		return nil, err
	}
	for _, p := range procs {
		if p.Kind() == harness.KindVMM {
			return machineArgs(p.PID, d.Dir)
		}
	}
	return nil, errors.New("find the pod's QEMU: there is none")
}

func withTools(dir string) oci.SpecOpts {
	return oci.WithMounts([]specs.Mount{{Destination: "/tools", Type: "bind", Source: dir, Options: []string{"rbind", "ro"}}})
}

// measure takes all rounds.
func (t *throughput) measure(ctx context.Context, c *harness.Container, plain harness.Netns, bare *bareNetwork) error {
	for i := range throughputRounds {
		fmt.Fprintf(os.Stderr, "bench: network, round %d of %d\n", i+1, throughputRounds)
		if err := t.round(ctx, c, plain, bare); err != nil {
			return err
		}
	}
	return nil
}

// benchNetwork measures and prints the network alone.
func benchNetwork(ctx context.Context, d *harness.Daemon) error {
	t, err := measureThroughput(ctx, d)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, d.LogTail(20))
	}
	t.print(os.Stdout)
	fmt.Fprintf(os.Stdout, "\nmade by: go run ./tests/bench -network -containerd %s\n", d.Release().Name)
	return nil
}

// round measures each direction once from both places.
func (t *throughput) round(ctx context.Context, c *harness.Container, plain harness.Netns, bare *bareNetwork) error {
	for _, m := range []struct {
		into *series
		run  func() (string, error)
	}{
		{&t.toHost.guest, func() (string, error) { return iperfInGuest(ctx, c) }},
		{&t.toHost.plain, func() (string, error) { return plain.Run(iperfClient(iperf, plainWire)...) }},
		{&t.toHost.bare, func() (string, error) { return bare.iperf() }},
		{&t.fromHost.guest, func() (string, error) { return iperfInGuest(ctx, c, "-R") }},
		{&t.fromHost.plain, func() (string, error) { return plain.Run(append(iperfClient(iperf, plainWire), "-R")...) }},
		{&t.fromHost.bare, func() (string, error) { return bare.iperf("-R") }},
	} {
		report, err := m.run()
		if err != nil {
			return err
		}
		rate, err := mbits(report)
		if err != nil {
			return err
		}
		*m.into = append(*m.into, rate)
	}
	return nil
}

func iperfClient(program, wire string) []string {
	return []string{program, "-c", wire + ".1", "-t", strconv.Itoa(throughputSeconds), "-O", "1", "-J"}
}

// iperfInGuest runs the client by the dynamic loader, which finds the libraries
// beside it.
func iperfInGuest(ctx context.Context, c *harness.Container, more ...string) (string, error) {
	args := append([]string{"/tools/" + loader, "--library-path", "/tools"}, iperfClient("/tools/iperf3", podWire)...)
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	p, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: append(args, more...)})
	if err != nil {
		return "", err
	}
	if code != 0 {
		return "", fmt.Errorf("iperf3 in the guest: exit code %d: %s%s", code, p.Out, p.Err)
	}
	return p.Out.String(), nil
}

// startServer starts iperf3's server in a namespace; it listens when this
// returns. The caller must call stop.
func startServer(ctx context.Context, ns harness.Netns) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := ns.Command(ctx, iperf, "-s", "--forceflush")
	out := &harness.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start iperf3: %w", err)
	}
	stop = func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}
	waiting, done := context.WithTimeout(ctx, runTimeout)
	defer done()
	if err := out.Await(waiting, "Server listening"); err != nil {
		stop()
		return nil, fmt.Errorf("start iperf3: %w", err)
	}
	return stop, nil
}

// loader is the name of x86-64's dynamic loader.
const loader = "ld-linux-x86-64.so.2"

// staged copies a program and its libraries into a new directory, which the
// caller removes, even after an error.
func staged(program string) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "kbtools"); err != nil {
		return "", err
	}
	list, err := exec.Command("ldd", program).Output()
	if err != nil {
		return dir, fmt.Errorf("list the libraries of %s: %w", program, err)
	}
	files := []string{program}
	for _, word := range strings.Fields(string(list)) {
		if filepath.IsAbs(word) {
			files = append(files, word)
		}
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return dir, fmt.Errorf("stage %s: %w", program, err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o755); err != nil {
			return dir, fmt.Errorf("stage %s: %w", program, err)
		}
	}
	return dir, nil
}

// print writes the table; ratios are the guest's throughput relative to the
// others.
func (t *throughput) print(out io.Writer) {
	fmt.Fprintf(out, "\nTCP with a process of the host's, median of %d times %d s, Mbit/s (iperf3)\n", throughputRounds, throughputSeconds)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tguest, by veth\tnamespace, by veth\tbare QEMU, by TAP\tguest to namespace\tguest to bare\t")
	for _, way := range []struct {
		name string
		places
	}{{"to the host", t.toHost}, {"from the host", t.fromHost}} {
		guest, plain, bare := way.guest.median(), way.plain.median(), way.bare.median()
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.3f\t%.3f\t\n", way.name, guest, plain, bare, guest/plain, guest/bare)
	}
	_ = w.Flush()
}
