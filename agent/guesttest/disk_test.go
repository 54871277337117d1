package guesttest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

const diskDir = api.GuestRunDir + "/disks/"

// The guest's disks (plug_test.go) as storages.
func rootfsDisk(target string, options ...string) *api.Storage {
	return &api.Storage{Driver: "virtio-blk", Source: "01/03", Fstype: "ext4", Target: diskDir + target, Options: options}
}

func upperDisk(target string) *api.Storage {
	return &api.Storage{Driver: "scsi", Source: "01/04:3:0", Fstype: "ext4", Target: diskDir + target}
}

// on returns the configuration of a container with a root file system on
// storages.
func on(t *testing.T, root, script string, config *api.ContainerConfig) *api.ContainerConfig {
	t.Helper()
	spec := shell("export PATH=/bin; for a in cat ls stat head dd df nproc sleep kill touch grep; do alias $a=\"busybox $a\"; done; " + script)
	spec.Root.Path = root
	return withSpec(t, spec, config)
}

func withSpec(t *testing.T, spec *specs.Spec, config *api.ContainerConfig) *api.ContainerConfig {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	config.Spec = text
	return config
}

// create makes a container, for finish.
func (m *machine) create(t *testing.T, id string, config *api.ContainerConfig) error {
	t.Helper()
	_, err := m.task.Create(t.Context(), &taskapi.CreateTaskRequest{ID: id, Stdout: "y", Stderr: "y", Options: packedConfig(t, config)})
	return errgrpc.ToNative(err)
}

func TestGuestRootOnADisk(t *testing.T) {
	m := guestOnly(t)
	// Two containers use the same disk, one of them only for reading.
	for _, order := range [][]string{{"writer", "reader"}, {"reader", "writer"}} {
		configs := map[string]*api.ContainerConfig{
			"writer": on(t, diskDir+"w/rootfs", "echo written >/tmp/f; grep ' / ' /proc/mounts",
				&api.ContainerConfig{Storages: []*api.Storage{rootfsDisk("w", "nosuid")}}),
			"reader": on(t, diskDir+"r/rootfs", "cat /tmp/f; touch /tmp/g; grep -c ' / ext4 ro,' /proc/mounts",
				&api.ContainerConfig{Storages: []*api.Storage{rootfsDisk("r", "ro")}}),
		}
		for _, id := range order {
			if err := m.create(t, id, configs[id]); err != nil {
				t.Fatal(err)
			}
		}
		if r := m.finish(t, "writer", ""); r.exit.GetStatus() != 0 || !strings.HasPrefix(r.out, "/dev/vda / ext4 rw,nosuid,relatime") {
			t.Errorf("%v: writer: %+v", order, r)
		}
		if r := m.finish(t, "reader", ""); r.out != "written\n1\n" || !strings.Contains(r.errs, "Read-only file system") {
			t.Errorf("%v: reader: %+v", order, r)
		}
		m.forget("writer")
		m.forget("reader")
	}
	if mounts := fileIn(t, "/proc/mounts"); strings.Contains(mounts, diskDir) {
		t.Error(mounts)
	}
}

func TestGuestOverlayOfDisks(t *testing.T) {
	m := guestOnly(t)
	for _, want := range []string{"1\n", "2\n"} { // The upper disk keeps what was written.
		config := on(t, diskDir+"root", "echo x >>/tmp/lines; busybox wc -l </tmp/lines; ls /tmp", &api.ContainerConfig{Storages: []*api.Storage{
			rootfsDisk("lower", "ro"), upperDisk("rw"),
			{Driver: "overlay", Target: diskDir + "root", Options: []string{
				"lowerdir=" + diskDir + "lower/rootfs", "upperdir=" + diskDir + "rw/upper", "workdir=" + diskDir + "rw/work",
			}},
		}})
		if err := m.create(t, "overlay", config); err != nil {
			t.Fatal(err)
		}
		if r := m.finish(t, "overlay", ""); !strings.HasPrefix(r.out, want) {
			t.Errorf("%+v, want %q", r, want)
		}
		m.forget("overlay")
	}
}

func TestGuestDevices(t *testing.T) {
	m := guestOnly(t)
	const look = "stat -c '%F %a %u:%g' /dev/raw /dev/sub/read; head -c 9 /dev/raw; echo changed >/dev/raw; head -c 8 /dev/sub/read; " +
		"echo no >/dev/sub/read; mknod /dev/other b 254 0; cat </dev/other"
	const want = "block special file 640 0:6\nblock special file 666 0:0\nraw disk\nchanged\n"
	raw := &api.Device{Path: "/dev/raw", Driver: "scsi", Source: "01/04:3:7", Mode: 0o640, Gid: 6, Access: "rwm"}
	late := &api.Device{Path: "/dev/sub/read", Driver: "scsi", Source: "01/04:3:7", Mode: 0o666, Access: "r"}
	// One node for both: device rules apply to numbers, not to nodes.
	config := withSpec(t, shell(look), &api.ContainerConfig{Devices: []*api.Device{raw, late}})
	if err := m.create(t, "devices", config); err != nil {
		t.Fatal(err)
	}
	if r := m.finish(t, "devices", ""); !strings.HasPrefix(r.out, want) || !strings.Contains(r.errs, "Operation not permitted") {
		t.Errorf("%+v, want %q", r, want)
	}
	config = withSpec(t, shell("head -c 3 /dev/sub/read; echo no >/dev/sub/read"), &api.ContainerConfig{Devices: []*api.Device{late}})
	if err := m.create(t, "readonly", config); err != nil {
		t.Fatal(err)
	}
	if r := m.finish(t, "readonly", ""); r.out != "no\n" || !strings.Contains(r.errs, "Operation not permitted") {
		t.Errorf("%+v", r)
	}
}

func TestGuestDeviceInAUserNamespace(t *testing.T) {
	m := guestOnly(t)
	spec := shell("stat -c '%F %a %u:%g' /dev/raw; head -c 3 /dev/raw >/dev/null && echo read; echo changed >/dev/raw")
	inUserNamespace(spec)
	config := withSpec(t, spec, &api.ContainerConfig{Devices: []*api.Device{
		{Path: "/dev/raw", Driver: "scsi", Source: "01/04:3:7", Mode: 0o640, Uid: 7, Gid: 0, Access: "rw"},
	}})
	if err := m.create(t, "userdevice", config); err != nil {
		t.Fatal(err)
	}
	if r := m.finish(t, "userdevice", ""); r.out != "block special file 640 7:0\nread\n" || !strings.Contains(r.errs, "can't create /dev/raw: Permission denied") {
		t.Errorf("%+v", r)
	}
}

func TestGuestPluggedDisks(t *testing.T) {
	m := guestOnly(t)
	wants("disk")
	wants("lun")
	config := on(t, diskDir+"late/rootfs", "echo here; head -c 4 /dev/lun >/dev/null && echo there", &api.ContainerConfig{
		Storages: []*api.Storage{{Driver: "virtio-blk", Source: "01/06", Fstype: "ext4", Target: diskDir + "late"}},
		Devices:  []*api.Device{{Path: "/dev/lun", Driver: "scsi", Source: "01/04:200:0", Mode: 0o600, Access: "r"}},
	})
	if err := m.create(t, "plugged", config); err != nil {
		t.Fatal(err)
	}
	if r := m.finish(t, "plugged", ""); r.out != "here\nthere\n" {
		t.Errorf("%+v", r)
	}
}

func TestGuestMissingDisk(t *testing.T) {
	m := guestOnly(t)
	err := m.create(t, "missing", withSpec(t, shell("true"), &api.ContainerConfig{Devices: []*api.Device{
		{Path: "/dev/x", Driver: "scsi", Source: "01/04:9:0", Access: "r"},
	}}))
	if !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "container missing: device /dev/x: find scsi disk 01/04:9:0: it did not come within 10s") {
		t.Error(err)
	}
}

// A disk that is still in use is not released.
func TestGuestBusyDisk(t *testing.T) {
	m := guestOnly(t)
	const target = diskDir + "busy"
	config := withSpec(t, shell("true"), &api.ContainerConfig{Storages: []*api.Storage{upperDisk("busy")}})
	if err := m.create(t, "busy", config); err != nil {
		t.Fatal(err)
	}
	open := fileOpen(t, target+"/lost+found")
	_, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: "busy"})
	err = errgrpc.ToNative(err)
	want := fmt.Sprintf("unmount storage %s: device or resource busy: process 1 (guesttest) has %s/lost+found", target, target)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if err := open.Close(); err != nil {
		t.Error(err)
	}
	if _, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: "busy"}); err != nil {
		t.Errorf("when it is free: %v", err)
	}
}

// What the host has not answered of a container's share keeps none of its disks: the
// container is deleted, and the disk is free.
func TestGuestDiskIsFreeAfterKeptMounts(t *testing.T) {
	m := guestOnly(t)
	volume := shell("busybox touch /data/x")
	volume.Mounts = append(volume.Mounts, specs.Mount{Destination: "/data", Type: "bind", Source: diskDir + "kept", Options: []string{"rbind"}})
	for id, config := range map[string]*api.ContainerConfig{
		"volume": withSpec(t, volume, &api.ContainerConfig{Storages: []*api.Storage{upperDisk("kept")}}),
		"root":   on(t, diskDir+"kept/rootfs", "true", &api.ContainerConfig{Storages: []*api.Storage{rootfsDisk("kept")}}),
	} {
		if _, err := m.task.Create(t.Context(), &taskapi.CreateTaskRequest{ID: id, Options: packedConfig(t, config)}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
		m.exit(t, id, "")
		if _, err := m.guest.KeepMounts(t.Context(), &api.KeepMountsRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: id}); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// A container that is being made has copies of all the agent's mounts for a
// moment, and one that has ended still has its own.
func TestGuestDiskIsFreeAfterDelete(t *testing.T) {
	m := guestOnly(t)
	const others, rounds = 3, 4
	done := make(chan error, others)
	for i := range others {
		go func() {
			done <- func() error {
				for n := range rounds {
					if err := m.comeAndGo(t, fmt.Sprintf("other-%d-%d", i, n), &api.ContainerConfig{}); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for n := range rounds {
		began := time.Now()
		if err := m.comeAndGo(t, fmt.Sprint("disk-", n), &api.ContainerConfig{Storages: []*api.Storage{upperDisk("free")}}); err != nil {
			t.Error(err)
		}
		fd, err := unix.Open("/dev/sda", unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Errorf("the disk is in use: %v", err)
			continue
		}
		t.Logf("came and went in %v", time.Since(began))
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
	for range others {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// comeAndGo makes and deletes a container that is never started.
func (m *machine) comeAndGo(t *testing.T, id string, config *api.ContainerConfig) error {
	t.Helper()
	if err := m.create(t, id, withSpec(t, shell("true"), config)); err != nil {
		return fmt.Errorf("create %s: %w", id, err)
	}
	_, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: id})
	return errgrpc.ToNative(err)
}
