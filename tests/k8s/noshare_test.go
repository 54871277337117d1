package k8s

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/k8s/node"
)

// kataDisk is the RuntimeClass of pods that share no file with the node.
const kataDisk = "kata-disk"

// diskHandler makes containerd keep the snapshots of such pods as files with a
// file system each, which are their containers' disks, as docs/kubernetes.md has it.
// containerd unpacks what it pulls only for the snapshotters in its list.
const diskHandler = `version = 3
[plugins.'io.containerd.snapshotter.v1.blockfile']
  scratch_file = "%[1]s/scratch.ext4"
[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]
  platform = "linux/amd64"
  snapshotter = "overlayfs"
[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]
  platform = "linux/amd64"
  snapshotter = "blockfile"
  differ = "walking"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata-disk]
  runtime_type = "io.containerd.kata.v2"
  runtime_path = "/opt/kata/bin/containerd-shim-kata-v2"
  snapshotter = "blockfile"
  privileged_without_host_devices = true
  privileged_without_host_devices_all_devices_allowed = true
  pod_annotations = ["io.katacontainers.*"]
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata-disk.options]
  ConfigPath = "%[1]s/configuration.toml"
`

const diskClass = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: kata-disk}
handler: kata-disk
`

// withoutShare gives the node a handler whose pods share no file with it, until the
// test ends.
func withoutShare(t *testing.T) {
	t.Helper()
	const dropIn = "/etc/containerd/conf.d/60-kata-disk.toml"
	dir := filepath.Join(node.Dir, kataDisk)
	again := func(ctx context.Context) {
		if err := bed.node.Restart(ctx, node.Containerd); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		if err := errors.Join(os.Remove(dropIn), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
		again(context.Background())
		bed.node.Kubectl(context.Background(), "", "delete", "runtimeclass", kataDisk)
	})
	own := filepath.Join(dir, "config.d", "20-disk.toml")
	err := errors.Join(
		os.MkdirAll(filepath.Dir(own), 0o755),
		harness.KataConfig{}.Write(bed.layout, filepath.Join(dir, "configuration.toml")),
		os.WriteFile(own, []byte("[hypervisor.qemu]\nshared_fs = \"none\"\ndisable_block_device_use = false\n"), 0o600),
		os.WriteFile(dropIn, fmt.Appendf(nil, diskHandler, dir), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	// Small: containerd copies it for each layer and each container.
	if r := node.Run(exec.CommandContext(t.Context(), "/usr/sbin/mkfs.ext4", "-q", "-m", "0", filepath.Join(dir, "scratch.ext4"), "24m")); r.Code != 0 {
		t.Fatalf("make the scratch file: %+v", r)
	}
	again(t.Context())
	if r := bed.node.Kubectl(t.Context(), diskClass, "apply", "-f", "-"); r.Code != 0 {
		t.Fatalf("make the RuntimeClass: %+v", r)
	}
}

// Pods that share no file with the node have logs, commands, volumes and
// termination messages as others do.
func TestWithoutShare(t *testing.T) {
	withoutShare(t)
	on(t, []string{runc, kataDisk}, func(s *stage) {
		lastWords(s)
		s.settings("first")
		pod := s.pod("noshare", `
			volumes:
			- {name: scratch, emptyDir: {}}
			- {name: config, configMap: {name: settings-$RUNTIME}}
			containers:
			- name: reader
			  image: $BUSYBOX
			  stdin: true
			  command: [sh, -c, "echo hello; while read -r l; do echo got $l; done; exec sleep 1000"]
			  volumeMounts: [{name: scratch, mountPath: /scratch}, {name: config, mountPath: /config}]
			- {name: other, image: $BUSYBOX, command: [sleep, "1000"], volumeMounts: [{name: scratch, mountPath: /scratch}]}`)
		s.ready(pod)
		execs(s, pod)
		attach(s, pod)
		s.same("the volume in the other container", s.sh(pod, "echo word >/scratch/file")+s.must("exec", pod, "-c", "other", "--", "cat", "/scratch/file"), "word\n")
		s.same("the config map", s.sh(pod, "cat /config/key"), "first")
		s.settings("second")
		s.until("the config map after its update", "second", func() string { return s.sh(pod, "cat /config/key") })
		if s.runtime == kataDisk {
			s.same("shared file systems", s.sh(pod, "grep -c virtiofs /proc/mounts || true"), "0")
			s.same("the root file system", s.sh(pod, "awk '$2 == \"/\" {print $3}' /proc/mounts"), "ext4")
		}
	})
}

// directVolume runs a command of the installed kata-runtime for direct-assigned
// volumes, as storage drivers do.
func (s *stage) directVolume(args ...string) node.Result {
	return node.Run(exec.CommandContext(s.ctx, "/opt/kata/bin/kata-runtime", append([]string{"direct-volume"}, args...)...))
}

// assign assigns a disk to a directory of the node until the case ends.
func (s *stage) assign(dir, device string) {
	s.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.Fatal(err)
	}
	info := `{"volume-type": "block", "device": "` + device + `", "fstype": "ext4"}`
	if r := s.directVolume("add", "--volume-path", dir, "--mount-info", info); r.Code != 0 {
		s.Fatalf("assign %s: %+v", device, r)
	}
	s.Cleanup(func() {
		r := node.Run(exec.Command("/opt/kata/bin/kata-runtime", "direct-volume", "remove", "--volume-path", dir))
		if r.Code != 0 {
			s.Errorf("remove the assignment: %+v", r)
		}
		// The leak check counts what is below the runtime's directory.
		for _, empty := range []string{"/run/kata-containers/shared/direct-volumes", "/run/kata-containers/shared"} {
			_ = os.Remove(empty)
		}
	})
}

// A disk that a driver has assigned to a pod's volume is mounted in the guest,
// with its statistics, and grows while the pod uses it.
func TestDirectVolume(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		const grown = "268435456"
		dir := filepath.Join(node.Dir, "direct")
		file := s.disk("direct")
		s.assign(dir, file)
		if r := s.directVolume("stats", "--volume-path", dir); r.Code == 0 {
			s.Errorf("statistics before the pod: %s", r.Out)
		}
		pod := s.pod("direct", `
			volumes: [{name: data, hostPath: {path: `+dir+`}}]
			containers: [{name: c, image: $BUSYBOX, command: [sleep, "1000"], volumeMounts: [{name: data, mountPath: /data}]}]`)
		s.ready(pod)
		s.same("the file system", s.sh(pod, "awk '$2 == \"/data\" {print $3}' /proc/mounts"), "ext4")
		s.sh(pod, "echo word >/data/file")
		r := s.directVolume("stats", "--volume-path", dir)
		if r.Code != 0 || !strings.Contains(r.Out, `"usage"`) {
			s.Errorf("statistics: %+v", r)
		}
		r = s.directVolume("resize", "--volume-path", dir, "--size", grown)
		s.same("the answer to resize", r.Out+r.Errors, dir+": "+grown+" bytes\n")
		s.same("a file larger than the disk was", s.sh(pod, "dd if=/dev/zero of=/data/large bs=1M count=128 2>/dev/null && stat -c %s /data/large"), "134217728")
		s.must("delete", "pod", pod)
		s.same("the file on the node's disk", s.program("debugfs", "-R", "cat /file", file), "word")
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			s.Errorf("the volume's directory: %v, %v", entries, err)
		}
	})
}
