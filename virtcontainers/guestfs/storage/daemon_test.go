package storage

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

// daemonEnv names an additional daemon to test with.
const daemonEnv = "KATABOX_TEST_VIRTIOFSD"

// eachDaemon runs a test with QEMU's virtiofsd and the Rust one, if they are
// installed.
func eachDaemon(t *testing.T, run func(t *testing.T, path string)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	found := 0
	for _, path := range []string{daemon, "/usr/libexec/virtiofsd", os.Getenv(daemonEnv)} {
		if _, err := os.Stat(path); err == nil && filepath.IsAbs(path) {
			found++
			t.Run(strings.Trim(strings.ReplaceAll(path, "/", "-"), "-"), func(t *testing.T) { run(t, path) })
		}
	}
	if found == 0 {
		t.Skip("no virtiofsd is installed")
	}
}

// askingVM attaches a device, as far as a daemon can see: it asks for the
// features, which a daemon answers once it is ready. It keeps the connection
// open until the test ends.
type askingVM struct{ t *testing.T }

func (vm askingVM) Attach(_ context.Context, d hypervisor.Device) error {
	share, ok := d.(hypervisor.FSShare)
	if !ok {
		return fmt.Errorf("a device %T", d)
	}
	kept, err := unix.Dup(int(share.Socket.Fd()))
	if err != nil {
		return err
	}
	vm.t.Cleanup(func() { _ = unix.Close(kept) })
	const getFeatures, version = 1, 1 // QEMU, docs/interop/vhost-user.rst
	message := make([]byte, 12)
	binary.LittleEndian.PutUint32(message, getFeatures)
	binary.LittleEndian.PutUint32(message[4:], version)
	if _, err := share.Socket.Write(message); err != nil {
		return err
	}
	if err := share.Socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	_, err = io.ReadFull(share.Socket, make([]byte, 20))
	return err
}

func openDaemon(t *testing.T, path string, args ...string) *Share {
	t.Helper()
	s, err := OpenShare(t.Context(), ShareOptions{ID: "usr", Scratch: t.TempDir(), Daemon: path, Tag: "t", ExtraArgs: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A compromised daemon, with all of its descriptors, reaches no directory but
// the share's.
func TestDaemonHasNoWayOut(t *testing.T) {
	eachDaemon(t, func(t *testing.T, path string) {
		s := openDaemon(t, path)
		if err := s.Attach(t.Context(), askingVM{t}); err != nil {
			t.Fatal(err)
		}
		proc := fmt.Sprintf("/proc/%d", s.PID())
		ways, err := filepath.Glob(proc + "/fd/*")
		if err != nil || len(ways) < 4 {
			t.Fatalf("descriptors %v, %v", ways, err)
		}
		directories := 0
		for _, way := range append(ways, proc+"/cwd", proc+"/root") {
			info, err := os.Stat(way)
			if err != nil || !info.IsDir() {
				continue
			}
			directories++
			for range 8 {
				way += "/.."
				for _, name := range []string{"etc/passwd", "etc/ld.so.cache", "usr/bin", "stage", "proc/2", "2", "sys/kernel/core_pattern"} {
					if _, err := os.Stat(way + "/" + name); err == nil {
						t.Errorf("%s leads to %s", way, name)
					}
				}
			}
		}
		if directories < 3 {
			t.Errorf("%d directories are open, want the share, the root and /proc/self/fd at least", directories)
		}
	})
}

// The daemon's last output is in the error.
func TestDaemonsLastWords(t *testing.T) {
	eachDaemon(t, func(t *testing.T, path string) {
		s := openDaemon(t, path, "--no-such-option")
		err := s.Attach(t.Context(), askingVM{t})
		if err == nil || !strings.Contains(err.Error(), "virtiofsd said: ") || !strings.Contains(err.Error(), "no-such-option") {
			t.Errorf("the error is %v", err)
		}
	})
}

// A program that is not virtiofsd is refused, with its output in the error.
func TestNotADaemon(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	liar := filepath.Join(t.TempDir(), "virtiofsd")
	for text, want := range map[string]string{
		"#!/bin/sh\necho whatever >&2; exit 3\n": "virtiofsd said: whatever",
		"#!/bin/sh\nwhile :; do echo x; done\n":  "context canceled",
		"no program":                             "exec format error",
	} {
		if err := os.WriteFile(liar, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		if strings.Contains(text, "while") {
			time.AfterFunc(100*time.Millisecond, cancel)
		}
		s, err := OpenShare(ctx, ShareOptions{ID: "pod", Scratch: t.TempDir(), Daemon: liar, Tag: "t"})
		if err == nil {
			t.Errorf("%q is a daemon; closed: %v", text, s.Close(context.Background()))
		} else if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), liar) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
		cancel()
	}
}

func TestDialects(t *testing.T) {
	rust := "--shared-dir --posix-acl"
	for _, test := range []struct {
		d           dialect
		cache, want string
	}{
		{qemuDialect(), "never", "cache=none"},
		{qemuDialect(), "metadata", "cache=auto"},
		{qemuDialect(), "", "cache=auto"},
		{qemuDialect(), "always", "cache=always"},
		{rustDialect(rust), "never", "--cache=never"},
		{rustDialect(rust), "metadata", "--cache=auto"},
		{rustDialect(rust), "", "--cache=auto"},
		{rustDialect(rust), "auto", "--posix-acl"},
		{rustDialect(rust), "auto", "--shared-dir=/x"},
		{qemuDialect(), "auto", "source=/x"},
	} {
		if args := test.d("/x", test.cache, 3); !slices.Contains(args, test.want) {
			t.Errorf("cache %q: %q is not among %q", test.cache, test.want, args)
		}
	}
	for _, arg := range rustDialect(rust)("/x", "auto", 3) {
		if strings.HasPrefix(arg, "--log-level") {
			t.Errorf("an option that the daemon does not have: %s", arg)
		}
	}
}
