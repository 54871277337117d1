package containerd

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
)

// Every guest has the host's random number generator. Its driver is loaded when
// the first container runs.
func TestRandomNumbersOfTheHost(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		c := add(ctx, t, pod, harness.ContainerConfig{
			Name: "rng", Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{oci.WithAllDevicesAllowed},
		})
		works(ctx, t, c, "for i in $(seq 600); do grep -q virtio_rng /sys/class/misc/hw_random/rng_current && break; sleep 0.1; done; "+
			"grep -q virtio_rng /sys/class/misc/hw_random/rng_current")
		works(ctx, t, c, "mknod /hwrng c 10 183 && test $(head -c 16 /hwrng | wc -c) = 16")
	})
}

// qemuOf is the pid of the only pod's QEMU.
func qemuOf(t *testing.T, d *harness.Daemon) int {
	t.Helper()
	p, err := d.One(harness.KindVMM)
	if err != nil {
		t.Fatal(err)
	}
	return p.PID
}

// qemuHas fails the test unless QEMU has a file of that name open.
func qemuHas(t *testing.T, d *harness.Daemon, name string) {
	t.Helper()
	pid := qemuOf(t, d)
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, fd := range fds {
		target, _ := os.Readlink(fd)
		if strings.HasPrefix(target, name) {
			return
		}
		all = append(all, target)
	}
	t.Errorf("QEMU has no file %s: %q", name, all)
}

// The machine's configuration reaches QEMU, and a pod works and grows with all
// of it.
func TestMachineSettings(t *testing.T) {
	needVM(t)
	configure := func(o *harness.Options) {
		o.Kata.Extra = "enable_mem_prealloc = true\nfile_mem_backend = \"/dev/shm\"\nreclaim_guest_freed_memory = true\n" +
			"enable_iothreads = true\nentropy_source = \"/dev/random\"\nextra_monitor_socket = \"qmp\"\ndefault_maxmemory = 1024\n"
	}
	newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		c := add(ctx, t, pod, limited("limited", 50_000, 100*mib, 50))
		wantGuest(ctx, t, c, 2, 384)
		qemuHas(t, d, "/memory/qemu_back_mem.")
		inMemory, err := filepath.Glob("/dev/shm/" + d.HostName(pod.Sandbox.Box.ID()) + "-*")
		if err != nil || len(inMemory) != 1 {
			t.Errorf("directories for the memory: %q, %v", inMemory, err)
		}
		socket := filepath.Join("/run/kata-containers/sandboxes", d.HostName(pod.Sandbox.Box.ID()), "qemu.sock")
		args := qemuArguments(t, d)
		for _, want := range []string{"iothread,id=pod.iothread.0", "prealloc=on", "chardev=extra"} {
			if !strings.Contains(args, want) {
				t.Errorf("QEMU was not given %s: %s", want, args)
			}
		}
		if said := askMonitor(t, socket, "qom-get", `{"path": "/machine/peripheral/balloon", "property": "free-page-reporting"}`); !strings.Contains(said, "true") {
			t.Errorf("the balloon: %s", said)
		}
		if said := askMonitor(t, socket, "query-iothreads", "{}"); !strings.Contains(said, "pod.iothread.0") {
			t.Errorf("threads: %s", said)
		}
		works(ctx, t, c, "echo fine")
	})
}

func qemuArguments(t *testing.T, d *harness.Daemon) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", qemuOf(t, d)))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\x00", " ")
}

// askMonitor sends QEMU a command over the extra monitor and returns its
// answer.
func askMonitor(t *testing.T, socket, command, arguments string) string {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	for _, ask := range []string{"", `{"execute": "qmp_capabilities"}`, fmt.Sprintf(`{"execute": %q, "arguments": %s}`, command, arguments)} {
		if ask != "" {
			if _, err := conn.Write([]byte(ask + "\n")); err != nil {
				t.Fatal(err)
			}
		}
		for lines.Scan() {
			if !strings.Contains(lines.Text(), `"event"`) {
				break
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return lines.Text()
}

// hugePages adds n huge pages of the default size to the host's, until the test
// ends.
func hugePages(t *testing.T, n int) {
	t.Helper()
	const file = "/proc/sys/vm/nr_hugepages"
	count := func() int {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Skipf("this host has no huge pages: %v", err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	set := func(n int) error { return os.WriteFile(file, []byte(strconv.Itoa(n)), 0) }
	t.Cleanup(func() {
		if err := set(before); err != nil {
			t.Error(err)
		}
	})
	if err := set(before + n); err != nil || count() < before+n {
		t.Skipf("huge pages cannot be reserved: %d of %d, %v", count()-before, n, err)
	}
}

// A machine of huge pages starts, grows while there are any, and then the error
// names the key that requests them.
func TestMachineOfHugePages(t *testing.T) {
	needVM(t)
	const free = 384 / 2
	configure := func(o *harness.Options) { o.Kata.Extra = "enable_hugepages = true\ndefault_maxmemory = 1024\n" }
	newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		if pod, err := d.NewPod(ctx, "none"); err == nil { // the host has some for others
			removed(t, "pod", pod.Remove)
		} else {
			wantError(t, err, "hypervisor.qemu.enable_hugepages", "128 huge pages of 2 MiB", "nr_hugepages")
		}
		hugePages(t, free)
		pod := newPod(ctx, t, d)
		c := add(ctx, t, pod, limited("limited", 50_000, 100*mib, 50))
		wantGuest(ctx, t, c, 2, 384)
		qemuHas(t, d, "/memfd:memory-backend-memfd")
		if args := qemuArguments(t, d); !strings.Contains(args, "hugetlb=on") {
			t.Errorf("QEMU's memory is not of huge pages: %s", args)
		}
		_, err := pod.Add(ctx, limited("large", 50_000, 300*mib, 50))
		wantError(t, err, "huge pages of 2 MiB, of which the host has")
		works(ctx, t, c, "echo fine")
	})
}

// The memory of a guest whose kernel panics is saved, and its pod ends.
func TestPanicIsDumped(t *testing.T) {
	needVM(t)
	dir := t.TempDir()
	configure := func(o *harness.Options) { o.Kata.Extra = fmt.Sprintf("guest_memory_dump_path = %q\n", dir) }
	newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		c := add(ctx, t, pod, harness.ContainerConfig{
			Name: "panic", Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{oci.WithPrivileged, oci.WithAllDevicesAllowed},
		})
		_, _, _ = c.ExecRun(ctx, harness.ExecConfig{Args: script("mount -t proc proc /mnt; echo c > /mnt/sysrq-trigger; echo c > /proc/sysrq-trigger")})
		wantCode(ctx, t, &c.Process, 255)
		path := awaitDump(t, filepath.Join(dir, pod.Sandbox.Box.ID(), "vmcore-*.elf"), 256*mib)
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	})
}

// awaitDump waits until the only file of that pattern has a size. The end of
// the guest may be reported while its memory is still being written.
func awaitDump(t *testing.T, pattern string, size int64) string {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		dumps, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		var got int64
		if len(dumps) == 1 {
			if info, err := os.Stat(dumps[0]); err == nil {
				got = info.Size()
			}
		}
		if got >= size {
			return dumps[0]
		}
		if time.Now().After(deadline) {
			t.Fatalf("dumps %q of %d bytes, want one of %d", dumps, got, size)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
