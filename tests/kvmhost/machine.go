package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/kvmhost/wire"
)

// bootTimeout bounds the time from QEMU's start to the machine's Hello, which
// is about three seconds on an idle machine.
const bootTimeout = 4 * time.Minute

// stopTimeout bounds the end of the machine, and then of its daemons.
const stopTimeout = 20 * time.Second

// machine is the running KVM host.
type machine struct {
	bed *bed
	// number counts the machines of one run, from 1; it is part of the logs'
	// names.
	number  int
	silence time.Duration
	qemu    *child.Process
	daemons []*child.Process
	port    net.Conn // the frames
	frames  *bufio.Reader
	console *os.File
}

// boot starts the machine and waits until it says that it is up.
func (b *bed) boot(ctx context.Context, o options) (_ *machine, err error) {
	b.machines++
	m := &machine{bed: b, number: b.machines, silence: silence}
	hello, err := m.start(ctx, o)
	if err != nil {
		err = fmt.Errorf("boot the machine: %w%s", err, m.lastWords())
		return nil, errors.Join(err, m.stop(context.WithoutCancel(ctx)))
	}
	b.say("a machine of %d CPUs and %d MiB is up, kernel %s", o.cpus, o.memoryMiB, hello.Kernel)
	if len(hello.Problems) > 0 {
		err := fmt.Errorf("%w: the machine is no KVM host: %q", errCannot, hello.Problems)
		return nil, errors.Join(err, m.stop(context.WithoutCancel(ctx)))
	}
	return m, nil
}

// logPath returns the path of a log among the results; the first machine's have
// no number.
func (m *machine) logPath(name string) string {
	if m.number > 1 {
		name = fmt.Sprintf("%s-machine%d", name, m.number)
	}
	return filepath.Join(m.bed.results(), name+".log")
}

func (m *machine) start(ctx context.Context, o options) (hello wire.Hello, err error) {
	if m.console, err = os.Create(m.logPath("console")); err != nil {
		return hello, fmt.Errorf("make console log: %w", err)
	}
	if err := m.startAll(o); err != nil {
		return hello, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("%w: it is not up after %v", errDied, bootTimeout))
	defer cancel()
	kind, data, err := m.next(ctx)
	if err != nil {
		return hello, err
	}
	if kind != wire.KindHello {
		return hello, fmt.Errorf("first frame is %q, want %q", kind, wire.KindHello)
	}
	return hello, json.Unmarshal(data, &hello)
}

// share starts a virtiofsd and returns QEMU's end of its socket. It serves one
// connection, QEMU's, and ends with it.
func (m *machine) share(source string) (_ *os.File, err error) {
	listener, conn, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("share %s: %w", source, err)
	}
	defer func() { _ = listener.Close() }() // the daemon has its own
	daemon, err := child.Start(child.Options{
		Path: harness.DefaultVirtiofsd,
		Args: []string{
			fmt.Sprintf("--fd=%d", child.FirstExtraFD), "-o", "source=" + source, "-o", "sandbox=chroot",
			// No other process changes the files that the machine reads or
			// writes.
			"-o", "cache=always", "-o", "xattr", "-o", "log_level=err",
		},
		ExtraFiles: []*os.File{listener},
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("share %s: %w", source, err), conn.Close())
	}
	m.daemons = append(m.daemons, daemon)
	return conn, nil
}

// socketPair makes a listening unix socket and a connection to it, which is
// made before it is accepted. Then it removes the socket's name, so that none
// is left however this program ends.
func socketPair() (listener, conn *os.File, err error) {
	dir, err := os.MkdirTemp("", "kvmhost")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	addr := &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unix"}
	l, err := net.ListenUnix("unix", addr)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = l.Close() }()
	c, err := net.DialUnix("unix", nil, addr)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = c.Close() }()
	if listener, err = l.File(); err != nil {
		return nil, nil, err
	}
	if conn, err = c.File(); err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return listener, conn, nil
}

// shares returns the machine's shared directories by tag. It is a method
// because the results' path depends on the checkout.
func (m *machine) shares() []struct{ tag, source string } {
	return []struct{ tag, source string }{{wire.RootTag, "/"}, {wire.ResultsTag, m.bed.results()}}
}

// startAll starts the daemons and QEMU. QEMU's files are the port and the
// shares' connections, in this order.
func (m *machine) startAll(o options) error {
	port, err := m.openPort()
	if err != nil {
		return fmt.Errorf("make port: %w", err)
	}
	files := []*os.File{port}
	defer func() {
		for _, f := range files {
			_ = f.Close() // QEMU has its own
		}
	}()
	for _, s := range m.shares() {
		conn, err := m.share(s.source)
		if err != nil {
			return err
		}
		files = append(files, conn)
	}
	m.qemu, err = child.Start(child.Options{
		Path:       m.bed.qemu(),
		Args:       m.qemuArgs(o),
		ExtraFiles: files,
		Stdout:     m.console,
	})
	return err
}

// openPort makes the two ends of the port, keeps one and returns QEMU's.
func (m *machine) openPort() (theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs, ours := os.NewFile(uintptr(fds[0]), "port"), os.NewFile(uintptr(fds[1]), "port")
	defer func() { _ = ours.Close() }() // m.port is a duplicate
	if m.port, err = net.FileConn(ours); err != nil {
		return nil, errors.Join(err, theirs.Close())
	}
	m.frames = bufio.NewReader(m.port)
	return theirs, nil
}

// qemuArgs returns the arguments of a q35 under TCG. "max" has SVM
// (target/i386/cpu.c, max_x86_cpu_initfn), so KVM works in the machine.
// Features that make TCG slow are left out: a fifth level of page tables, which
// each walk through nested tables pays for twice (a pod took 15 % more CPU
// time), access checks that flush, and copies by single bytes, which Linux takes for
// the fastest where a CPU has ERMS or FSRM: the copy of a template's memory took 2 to 4
// seconds with them, up to 1.5 without.
func (m *machine) qemuArgs(o options) []string {
	memory := fmt.Sprintf("%dM", o.memoryMiB)
	args := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-name", "kvmhost",
		"-machine", "q35,accel=tcg", "-cpu", "max,la57=off,smap=off,smep=off,erms=off,fsrm=off", "-smp", fmt.Sprint(o.cpus), "-m", memory,
		// virtiofsd maps the memory.
		"-object", "memory-backend-memfd,id=memory,share=on,size=" + memory, "-numa", "node,memdev=memory",
		"-kernel", m.bed.kernel.image, "-initrd", m.bed.initrd(),
		"-append", "console=ttyS0 quiet panic=-1 reboot=t mitigations=off tsc=reliable",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-device", "virtio-rng-pci",
		"-device", "virtio-serial-pci",
		"-chardev", fmt.Sprintf("socket,id=port,fd=%d", child.FirstExtraFD),
		"-device", "virtserialport,chardev=port,name=" + wire.Port,
	}
	for i, s := range m.shares() {
		args = append(args, "-chardev", fmt.Sprintf("socket,id=%s,fd=%d", s.tag, child.FirstExtraFD+1+i),
			"-device", "vhost-user-fs-pci,chardev="+s.tag+",tag="+s.tag+",queue-size=1024")
	}
	return args
}

// lastWords returns the ends of QEMU's output and the console's.
func (m *machine) lastWords() string {
	var words string
	if m.qemu != nil {
		words = m.qemu.Stderr().LastLines(10)
	}
	if m.console == nil {
		return "\n" + words
	}
	console := child.NewTail(4 << 10)
	if data, err := os.ReadFile(m.console.Name()); err == nil {
		_, _ = console.Write(data) // never fails
	}
	return "\n" + words + "\n" + console.LastLines(20)
}

// stop powers the machine off, kills it if that does not work, and stops its
// daemons.
func (m *machine) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	var errs []error
	if m.port != nil {
		_ = m.port.SetDeadline(time.Now().Add(stopTimeout)) // a machine that hangs is killed below
		_ = wire.Write(m.port, wire.KindPowerOff, nil)      // so is one that does not read
	}
	if m.qemu != nil {
		select {
		case <-m.qemu.Done():
		case <-time.After(stopTimeout / 2):
		}
		errs = append(errs, m.qemu.Kill(ctx))
	}
	for _, d := range m.daemons {
		errs = append(errs, d.Kill(ctx))
	}
	if m.port != nil {
		errs = append(errs, m.port.Close())
	}
	if m.console != nil {
		errs = append(errs, m.console.Close())
	}
	return errors.Join(errs...)
}
