package guesttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/u-root/u-root/pkg/cpio"
)

const (
	image = "../../build/guest"
	// program is the tests' name in the guest.
	program = "guesttest"
	// bootTimeout bounds the guest's whole life.
	bootTimeout = 6 * time.Minute
)

// compared and failing are the tests that start containers by both ways: they have
// guests for themselves, because each of the two takes as long as all others together.
const compared, failing = "^TestGuestInit(Is|Waits)AsByStage$", "^TestGuestInitFailsAsByStage$"

// TestInGuest runs this package's other tests in guests.
func TestInGuest(t *testing.T) {
	if inGuest() {
		t.Skip("this is the guest")
	}
	qemu := needed(t)
	dir := t.TempDir()
	initrd := filepath.Join(dir, "initrd.img")
	if err := os.WriteFile(initrd, append(archive(t, build(t, dir)), read(t, image+"/initrd.img")...), 0o600); err != nil {
		t.Fatal(err)
	}
	guests := map[string]string{
		"comparison": "-test.run=" + compared, "failures": "-test.run=" + failing,
		"rest": "-test.skip=" + compared + "|" + failing,
	}
	if pattern := os.Getenv(chosenKey); pattern != "" {
		guests = map[string]string{"chosen": "-test.run=" + pattern}
	}
	for name, tests := range guests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
			defer cancel()
			console := boot(ctx, t, qemu, initrd, tests)
			t.Log(console)
			if !regexp.MustCompile(`(?m)^` + verdict + ` 0\s*$`).MatchString(console) {
				t.Error("the tests in the guest did not pass")
			}
		})
	}
}

// needed finds the programs and files that the test needs.
func needed(t *testing.T) (qemu string) {
	t.Helper()
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skipf("no QEMU: %v", err)
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skipf("no e2fsprogs: %v", err)
	}
	busybox(t)
	for _, file := range []string{image + "/vmlinux", image + "/initrd.img"} {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			t.Skipf("no %s: run make guest-image and make deps", file)
		}
	}
	return qemu
}

// busybox returns the path of the host's busybox.
func busybox(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Skipf("no busybox: run make deps: %v", err)
	}
	return path
}

// build builds this package's test program for the guest.
func build(t *testing.T, dir string) []byte {
	t.Helper()
	out := filepath.Join(dir, program)
	cmd := exec.Command("go", "test", "-c", "-o", out, "-tags", "netgo osusergo seccomp no_grpc",
		"-ldflags", "-s -w -extldflags -static", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build for the guest: %v\n%s", err, text)
	}
	return read(t, out)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// archive holds the program and the root file system of its containers. The
// kernel unpacks archives one after the other (Documentation/driver-api/
// early-userspace/buffer-format.rst), each at a multiple of four bytes.
func archive(t *testing.T, self []byte) []byte {
	t.Helper()
	records := []cpio.Record{
		cpio.StaticFile(program, string(self), 0o755),
		cpio.StaticFile("rootfs/bin/busybox", string(read(t, busybox(t))), 0o755),
		cpio.StaticFile("rootfs/etc/passwd", "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n", 0o644),
		cpio.StaticFile("rootfs/etc/group", "root:x:0:\nuser:x:1000:\n", 0o644),
	}
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "root"} {
		records = append(records, cpio.Directory("rootfs/"+dir, 0o777))
	}
	list, err := exec.Command(busybox(t), "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, applet := range strings.Fields(string(list)) {
		if applet != "busybox" {
			records = append(records, cpio.Symlink("rootfs/bin/"+applet, "busybox"))
		}
	}
	var buf bytes.Buffer
	w := cpio.Newc.Writer(&buf)
	if err := cpio.WriteRecordsAndDirs(w, records); err != nil {
		t.Fatal(err)
	}
	if err := cpio.WriteTrailer(w); err != nil {
		t.Fatal(err)
	}
	return append(buf.Bytes(), make([]byte, -buf.Len()&3)...)
}

// nics are the guest's, on a bridge as a pod's are. Each has its own isolated
// QEMU user network with a single server.
func nics() []string {
	args := []string{"-device", "pci-bridge,id=pod,bus=pcie.0,addr=0x1,chassis_nr=1,shpc=on"}
	for i, slot := range []string{"0x1e", "0x02"} {
		args = append(args,
			"-netdev", fmt.Sprintf("user,id=net%d,restrict=on,net=10.0.%d.0/24,guestfwd=tcp:%s-cmd:/bin/echo net%d", i, i, serverAddress(i), i),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=net%d,bus=pod,addr=%s,host_mtu=1450,mac=52:54:00:00:00:%02x,romfile=", i, slot, i))
	}
	return args
}

// serverAddress returns the address of the server in a NIC's network; the
// server sends that network's name.
func serverAddress(nic int) string { return fmt.Sprintf("10.0.%d.100:80", nic) }

// chosenKey names the variable that has one guest run some of its tests only: a
// pattern as for -run, without spaces.
const chosenKey = "KATABOX_TEST_GUEST_RUN"

// boot runs the guest to its end and returns what it printed. tests is a flag that
// chooses the tests.
func boot(ctx context.Context, t *testing.T, qemu, initrd, tests string) string {
	t.Helper()
	dir := t.TempDir()
	// Parameters that the kernel does not know become the init's environment
	// (Documentation/admin-guide/kernel-parameters.rst).
	environment := fmt.Sprintf(" %s=%v %s=%v %s=%s", erofsKey, hasErofs(), xfsKey, hasProgram("mkfs.xfs"), drawKey, os.Getenv(drawKey))
	args := []string{
		// As for a pod without KVM, both CPUs exist and one is offline: Linux
		// 6.12 accepts a hot-plugged CPU only if it recognizes the hypervisor
		// (arch/x86/kernel/acpi/boot.c, acpi_is_processor_usable), and TCG is
		// not one.
		"-M", "q35,accel=tcg", "-cpu", "max", "-smp", "2,sockets=2,cores=1,threads=1,maxcpus=2",
		"-m", fmt.Sprintf("%d,slots=2,maxmem=4G", startMiB),
		"-kernel", image + "/vmlinux", "-initrd", initrd,
		"-append", "console=ttyS0 quiet maxcpus=1 panic=-1 rdinit=/" + program + environment + " -- -test.v " + tests,
		"-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-qmp", "unix:" + dir + "/qmp,server=on,wait=off",
	}
	out := &console{wanted: make(chan string, len(plugs))}
	cmd := exec.CommandContext(ctx, qemu, slices.Concat(args, nics(), disks(t, dir))...)
	cmd.Stdout, cmd.Stderr = out, out
	ctx, cancel := context.WithCancel(ctx)
	plugged := make(chan error)
	go func() { plugged <- out.plug(ctx, dir) }()
	if err := cmd.Run(); err != nil {
		t.Errorf("QEMU: %v", err)
	}
	cancel()
	if err := <-plugged; err != nil {
		t.Error(err)
	}
	return out.String()
}
