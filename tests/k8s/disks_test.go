package k8s

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/engines/host"
	"github.com/katabox/katabox/tests/k8s/node"
)

// diskBytes is the size of disks that (*stage).disk makes.
const diskBytes = 64 << 20

// disk makes a file with an empty ext4, and returns its path.
func (s *stage) disk(name string) string {
	s.Helper()
	path := filepath.Join(node.Dir, host.Name()+"-"+name+"-"+s.runtime+".img")
	err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, diskBytes))
	if err != nil {
		s.Fatal(err)
	}
	s.program("mkfs.ext4", "-q", "-F", path)
	s.Cleanup(func() {
		if err := os.Remove(path); err != nil {
			s.Error(err)
		}
	})
	return path
}

// loop attaches a file to a loop device until the case ends.
func (s *stage) loop(file string) string {
	s.Helper()
	device := s.program("losetup", "--find", "--show", file)
	s.Cleanup(func() { s.program("losetup", "--detach", device) })
	return device
}

// program runs one of the machine's programs, which succeeds, and returns its
// output without the last newline.
func (s *stage) program(name string, args ...string) string {
	s.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path = "/usr/sbin/" + name
	}
	r := node.Run(exec.Command(path, args...))
	if r.Code != 0 {
		s.Fatalf("%s %v: %+v", name, args, r)
	}
	return strings.TrimSuffix(r.Out, "\n")
}

// removeLoops detaches the loop devices of the node's disks, and the kubelet's of
// these, that an interrupted run has left.
func removeLoops() error {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	backing, ours := map[string]string{}, map[string]bool{} // by device
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it was detached
		}
		device := "/dev/" + strings.Split(path, "/")[3]
		backing[device] = strings.TrimSpace(string(text))
		ours[device] = strings.Contains(backing[device], host.Name()+"-")
	}
	var errs []error
	for device, file := range backing {
		if ours[device] || ours[file] {
			errs = append(errs, detach(device))
		}
	}
	return errors.Join(errs...)
}

// detach detaches a loop device; if something has it open, when that closes it.
func detach(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) {
		err = nil // it was detached
	}
	if err != nil {
		err = fmt.Errorf("detach %s: %w", device, err)
	}
	return errors.Join(err, f.Close())
}

// blockVolume is a disk of the node as a volume, and a claim that is bound to it.
const blockVolume = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk-$RUNTIME}
spec:
  capacity: {storage: 64Mi}
  volumeMode: Block
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: default, name: disk-$RUNTIME}
  local: {path: DEVICE}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [NODE]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk-$RUNTIME}
spec:
  volumeMode: Block
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  volumeName: disk-$RUNTIME
  resources: {requests: {storage: 64Mi}}
`

// A privileged container mounts the disk that its pod has claimed, another one
// reads it, and it is the node's again afterwards, with what was written.
func TestPrivilegedBlockVolume(t *testing.T) {
	both(t, func(s *stage) {
		device := s.loop(s.disk("block"))
		s.apply(strings.NewReplacer("DEVICE", device, "NODE", node.Name).Replace(blockVolume))
		defer s.removeClaim()
		pod := s.pod("block", `
			volumes: [{name: disk, persistentVolumeClaim: {claimName: disk-$RUNTIME}}]
			containers:
			- name: mounts
			  image: $BUSYBOX
			  command: [sleep, "1000"]
			  securityContext: {privileged: true}
			  volumeDevices: [{name: disk, devicePath: /dev/data}]
			- name: reads
			  image: $BUSYBOX
			  command: [sleep, "1000"]
			  volumeDevices: [{name: disk, devicePath: /dev/other}]`)
		s.ready(pod)
		s.same("what the file system says", s.sh(pod, "test -b /dev/data && mount -t ext4 /dev/data /mnt && echo word >/mnt/file && cat /mnt/file && umount /mnt"), "word")
		s.sh(pod, "printf raw | dd of=/dev/data bs=512 seek=1 conv=sync,fsync 2>/dev/null") // before the superblock's 1024th byte
		s.same("the other container's view", s.must("exec", pod, "-c", "reads", "--", "sh", "-c", "dd if=/dev/other bs=512 skip=1 count=1 2>/dev/null | head -c 3"), "raw")
		s.must("delete", "pod", pod)
		s.same("the node's view of the file", s.program("debugfs", "-R", "cat /file", device), "word")
	})
}

// A disk that is a hostPath is one for a privileged container, wherever it is mounted. A
// directory in the node's /dev/shm is the node's.
func TestHostPathsBelowDev(t *testing.T) {
	both(t, func(s *stage) {
		device := s.loop(s.disk("hostpath"))
		memory := s.memoryDir()
		pod := s.pod("hostpath", `
			volumes:
			- {name: disk, hostPath: {path: `+device+`, type: BlockDevice}}
			- {name: memory, hostPath: {path: `+memory+`, type: Directory}}
			containers:
			- name: main
			  image: $BUSYBOX
			  command: [sleep, "1000"]
			  securityContext: {privileged: true}
			  volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}]`)
		s.ready(pod)
		s.same("what the file system says", s.sh(pod, "test -b /disk && mount -t ext4 /disk /mnt && echo word >/mnt/file && cat /mnt/file && umount /mnt"), "word")
		s.sh(pod, "echo word >/memory/file")
		s.must("delete", "pod", pod)
		s.same("the node's view of the disk", s.program("debugfs", "-R", "cat /file", device), "word")
		s.same("the node's view of the directory", s.program("cat", filepath.Join(memory, "file")), "word")
	})
}

// memoryDir makes a directory in the node's shared memory until the case ends.
func (s *stage) memoryDir() string {
	s.Helper()
	dir := "/dev/shm/" + host.Name() + "-" + s.runtime
	if err := os.Mkdir(dir, 0o755); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			s.Error(err)
		}
	})
	return dir
}

// removeClaim removes a block volume after its pod.
func (s *stage) removeClaim() {
	s.clear()
	for _, kind := range []string{"persistentvolumeclaim", "persistentvolume"} {
		s.must("delete", kind, "disk-"+s.runtime)
	}
}
