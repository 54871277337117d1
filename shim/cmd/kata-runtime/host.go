package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu"
	"github.com/katabox/katabox/hypervisor/vsock"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume/direct"
	"github.com/katabox/katabox/virtcontainers/pool"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

// host is everything that the commands read from the machine.
type host struct {
	// loadConfig reads the configuration; "" is the usual place.
	loadConfig func(path string) (*config.Config, error)
	// accel is qemu.DetectAccel.
	accel func() (hypervisor.Accel, string)
	// vsockKind is the kind of transport that a pod would get.
	vsockKind func(context.Context) (string, error)
	// open opens a file to read, openDevice one to read and write.
	open       func(path string) (io.ReadCloser, error)
	openDevice func(path string) error
	stat       func(path string) (os.FileInfo, error)
	lookPath   func(name string) (string, error)
	// output runs a program and returns its standard output.
	output func(ctx context.Context, path string, args ...string) (string, error)
	// jailable returns why a QEMU cannot run in a separate root directory.
	jailable func(path string) error
	// skLookup checks that the kernel has sk_lookup programs, idmap that it has
	// idmapped mounts, and mountIDs that it tells files' mounts; nil means that it does.
	skLookup, idmap, mountIDs func() error
	// release is the kernel's release; executable is this program's path.
	release, executable string
	cpus, uid           int
	// volumes is where direct-assigned volumes are kept.
	volumes direct.Dir
	// timeline asks the shim of a running pod.
	timeline func(ctx context.Context, id string) (*timeline.Timeline, error)
	// records is the directory of pods' records.
	records string
	// pool is the directory of spares.
	pool pool.Pool
	// makeTemplate makes the template of a configuration.
	makeTemplate func(ctx context.Context, cfg *config.Config, progress func(string)) (factory.Key, error)
}

// programTimeout bounds a program that is run to print its version.
const programTimeout = 10 * time.Second

func thisHost() host {
	return host{
		loadConfig: config.Load,
		accel:      func() (hypervisor.Accel, string) { return qemu.DetectAccel(qemu.Host{}) },
		vsockKind:  func(ctx context.Context) (string, error) { return vsockKind(ctx, vsock.Options{}) },
		open:       func(path string) (io.ReadCloser, error) { return os.Open(path) },
		openDevice: openDevice,
		stat:       os.Stat,
		lookPath:   exec.LookPath,
		output:     output,
		jailable:   qemu.CheckProgram,
		skLookup:   func() error { return features.HaveProgramType(ebpf.SkLookup) },
		idmap:      idmap,
		mountIDs:   mountIDs,
		release:    kernelRelease(),
		executable: executable(),
		cpus:       config.HostCPUs(),
		uid:        os.Geteuid(),
		volumes:    direct.Default,
		timeline:   askTimeline,
		records:    filepath.Join(runDir, "sandboxes"),
		pool:       virtcontainers.PoolDir(runDir),

		makeTemplate: makeTemplate,
	}
}

// vsockKind opens the transport that a pod would get, and closes it.
func vsockKind(ctx context.Context, o vsock.Options) (string, error) {
	t, err := vsock.Open(ctx, o)
	if err != nil {
		return "", err
	}
	return t.Kind(), t.Close()
}

func openDevice(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func output(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).Output()
	return string(out), err
}

// idmap calls mount_setattr(2), which came with idmapped mounts in Linux 5.12,
// in a way that can only fail.
func idmap() error {
	err := unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if errors.Is(err, unix.ENOSYS) {
		return err
	}
	return nil
}

// mountIDs reports whether statx(2) returns which mount a file is on: from Linux 5.8 on.
func mountIDs() error {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, "/", unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st); err != nil {
		return fmt.Errorf("statx: %w", err)
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return errors.New("statx does not return a file's mount")
	}
	return nil
}

func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

func executable() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}

// readAll reads at most limit bytes of a file.
func (h host) readAll(path string, limit int64) ([]byte, error) {
	f, err := h.open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
