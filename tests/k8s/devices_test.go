package k8s

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/k8s/node"
)

// cdiKind describes devices as a vendor's CDI file does
// (tags.cncf.io/container-device-interface, SPEC.md): a node and DISK with a file, and
// one that needs a hook in the container's namespaces.
const cdiKind = `{"cdiVersion": "0.7.0", "kind": "katabox.test/$RUNTIME", "containerEdits": {"env": ["ALL=all"]}, "devices": [
{"name": "one", "containerEdits": {"env": ["ONE=one"], "additionalGids": [4242],
 "deviceNodes": [{"path": "/dev/fuse0", "hostPath": "/dev/fuse", "fileMode": 384, "uid": 7, "gid": 8}, {"path": "/dev/disk0", "hostPath": "DISK"}],
 "mounts": [{"hostPath": "DIR/file", "containerPath": "/cdi/file", "options": ["ro", "nosuid", "nodev", "bind"]}]}},
{"name": "hooked", "containerEdits": {"hooks": [{"hookName": "createContainer", "path": "/bin/true"}]}}]}`

// vendor writes a CDI file until the case ends, and returns the disk and the
// directory in it.
func (s *stage) vendor() (disk, dir string) {
	s.Helper()
	disk, dir = s.loop(s.disk("vendor")), filepath.Join(node.Dir, "vendor-"+s.runtime)
	file := "/etc/cdi/" + s.runtime + ".json"
	for path, text := range map[string]string{
		filepath.Join(dir, "file"): "vendor",
		file:                       strings.NewReplacer("DISK", disk, "DIR", dir).Replace(s.expand(cdiKind)),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			s.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			s.Fatal(err)
		}
	}
	s.Cleanup(func() { _ = os.Remove(file) })
	return disk, dir
}

// cdiDevice is the name of a device of cdiKind, as a CDIDevice.
func (s *stage) cdiDevice(name string) string {
	return string(message(nil).with(1, "katabox.test/"+s.runtime+"="+name))
}

// devicesSeen is what a container with the device sees. The disk's number is the
// guest's.
const devicesSeen = `given all one
0 4242
crw------- 0 0 /dev/renamed
crw------- 7 8 /dev/fuse0
brw------- 0 0 /dev/data
brw------- 0 0 /dev/disk0
opened
vendorvendor
touch: /given/file: Read-only file system
raw`

const lookAtDevices = `echo $PLUGIN $ALL $ONE; id -G; stat -c '%A %u %g %n' /dev/renamed /dev/fuse0 /dev/data /dev/disk0
exec 3<>/dev/renamed 4<>/dev/fuse0 && echo opened; cat /given/file /cdi/file; echo; touch /given/file 2>&1
printf raw | dd of=/dev/data conv=sync,fsync 2>/dev/null; head -c 3 /dev/disk0`

// A device plugin gives its container variables, mounts, disks, devices of the kernel,
// and what a CDI file describes; the pod's other container gets none of it.
func TestDevicePlugins(t *testing.T) {
	both(t, func(s *stage) {
		disk, dir := s.vendor()
		plugin{"katabox.test/" + s.runtime, message(nil).entry(1, "PLUGIN", "given").
			with(2, string(message(nil).with(1, "/given").with(2, dir).flag(3))).
			with(3, device("/dev/renamed", "/dev/fuse", "rw")).with(3, device("/dev/data", disk, "rwm")).
			with(5, s.cdiDevice("one"))}.serve(t)
		pod := s.pod("plugin", `
			containers:
			- {name: c, image: $BUSYBOX, command: [sleep, "1000"], resources: {limits: {katabox.test/$RUNTIME: 1}}}
			- {name: other, image: $BUSYBOX, command: [sleep, "1000"]}`)
		s.ready(pod)
		s.same("what the container sees", s.sh(pod, lookAtDevices), devicesSeen)
		s.same("what the other one sees", s.must("exec", pod, "-c", "other", "--", "sh", "-c", "ls -d /dev/renamed /dev/data /given 2>/dev/null; echo $PLUGIN$ALL"), "\n")
		s.same("the node's view of the disk", s.program("head", "-c", "3", disk), "raw")
	})
}

// A device that is the node's hardware, and a hook that needs the container's
// namespaces, are errors that name them.
func TestDevicesThatNoGuestHas(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		s.vendor()
		for name, test := range map[string]struct {
			answer message
			want   string
		}{
			"serial": {message(nil).with(3, device("/dev/serial", "/dev/ttyS0", "rw")), "device /dev/serial, character device 4:64"},
			"hooked": {message(nil).with(5, s.cdiDevice("hooked")), "hooks.createContainer /bin/true"},
		} {
			plugin{"katabox.test/" + name, test.answer}.serve(t)
			pod := s.pod(name, fmt.Sprintf(`
				restartPolicy: Never
				containers: [{name: c, image: $BUSYBOX, command: [sleep, "1000"], resources: {limits: {katabox.test/%s: 1}}}]`, name))
			s.wait(pod, "jsonpath={.status.phase}=Failed")
			if got := s.get(pod, ".status.containerStatuses[*].state.terminated.message"); !strings.Contains(got, test.want) {
				s.Errorf("%s: %q, want %q in it", name, got, test.want)
			}
		}
	})
}
