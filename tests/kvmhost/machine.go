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
const bootTimeout = 2 * time.Minute

// stopTimeout bounds the end of the machine, and then of its daemons.
const stopTimeout = 20 * time.Second

// machine is the running KVM host.
type machine struct {
	bed     *bed
	dir     string // of its sockets
	qemu    *child.Process
	daemons []*child.Process
	port    net.Conn // the frames
	frames  *bufio.Reader
	console *os.File
}

// boot starts the machine and waits until it says that it is up.
func (b *bed) boot(ctx context.Context, o options) (_ *machine, err error) {
	m := &machine{bed: b}
	if m.dir, err = os.MkdirTemp("", "kvmhost"); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
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

func (m *machine) start(ctx context.Context, o options) (hello wire.Hello, err error) {
	if m.console, err = os.Create(filepath.Join(m.bed.results(), "console.log")); err != nil {
		return hello, fmt.Errorf("make console log: %w", err)
	}
	if err := m.share(wire.RootTag, "/"); err != nil {
		return hello, err
	}
	if err := m.share(wire.ResultsTag, m.bed.results()); err != nil {
		return hello, err
	}
	if err := m.startQEMU(o); err != nil {
		return hello, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("it is not up after %v", bootTimeout))
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

func (m *machine) socket(tag string) string { return filepath.Join(m.dir, tag+".sock") }

// share starts a virtiofsd. It serves one connection, QEMU's, and ends with it.
func (m *machine) share(tag, source string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: m.socket(tag), Net: "unix"})
	if err != nil {
		return fmt.Errorf("share %s: %w", source, err)
	}
	l.SetUnlinkOnClose(false)
	file, err := l.File()
	_ = l.Close()
	if err != nil {
		return fmt.Errorf("share %s: %w", source, err)
	}
	defer func() { _ = file.Close() }()
	daemon, err := child.Start(child.Options{
		Path: harness.DefaultVirtiofsd,
		Args: []string{
			fmt.Sprintf("--fd=%d", child.FirstExtraFD), "-o", "source=" + source, "-o", "sandbox=chroot",
			"-o", "cache=always", "-o", "xattr", "-o", "log_level=err",
		},
		ExtraFiles: []*os.File{file},
	})
	if err != nil {
		return fmt.Errorf("share %s: %w", source, err)
	}
	m.daemons = append(m.daemons, daemon)
	return nil
}

func (m *machine) startQEMU(o options) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make port: %w", err)
	}
	theirs, ours := os.NewFile(uintptr(fds[0]), "port"), os.NewFile(uintptr(fds[1]), "port")
	defer func() { _ = theirs.Close() }()
	m.port, err = net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		return fmt.Errorf("make port: %w", err)
	}
	m.frames = bufio.NewReader(m.port)
	m.qemu, err = child.Start(child.Options{
		Path:       harness.DefaultQEMU,
		Args:       m.qemuArgs(o),
		ExtraFiles: []*os.File{theirs},
		Stdout:     m.console,
	})
	return err
}

// qemuArgs is a q35 under TCG: "max" has SVM (target/i386/cpu.c,
// max_x86_cpu_initfn), with which its KVM works. What makes TCG slow is left
// out: a fifth level of page tables, which each walk through nested tables pays
// for twice (a pod took 15 % more CPU time), and access checks that flush.
func (m *machine) qemuArgs(o options) []string {
	memory := fmt.Sprintf("%dM", o.memoryMiB)
	args := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-name", "kvmhost",
		"-machine", "q35,accel=tcg", "-cpu", "max,la57=off,smap=off,smep=off", "-smp", fmt.Sprint(o.cpus), "-m", memory,
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
	for _, tag := range []string{wire.RootTag, wire.ResultsTag} {
		args = append(args, "-chardev", "socket,id="+tag+",path="+m.socket(tag),
			"-device", "vhost-user-fs-pci,chardev="+tag+",tag="+tag+",queue-size=1024")
	}
	return args
}

// lastWords is what QEMU and the console said last.
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

// stop ends the machine, by its own will if it can, and what serves it.
func (m *machine) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	var errs []error
	if m.port != nil {
		_ = m.port.SetDeadline(time.Now().Add(stopTimeout)) // a port that hangs is killed below
		_ = wire.Write(m.port, wire.KindPowerOff, nil)      // so is a machine that does not hear
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
	return errors.Join(append(errs, os.RemoveAll(m.dir))...)
}
