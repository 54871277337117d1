package k8s

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/k8s/node"
)

// What the node mounts below a volume with HostToContainer appears in the
// container, and the node can unmount it while the container runs, as drivers
// that mount again do.
func TestNodeMountsAndUnmounts(t *testing.T) {
	both(t, func(s *stage) {
		shared := filepath.Join(node.Dir, "mounts-"+s.runtime)
		inner := filepath.Join(shared, "inner")
		if err := os.MkdirAll(inner, 0o755); err != nil {
			s.Fatal(err)
		}
		pod := s.pod("mounts", `
			volumes: [{name: host, hostPath: {path: `+shared+`}}]
			containers:
			- name: c
			  image: $BUSYBOX
			  command: [sleep, "1000"]
			  volumeMounts: [{name: host, mountPath: /host, mountPropagation: HostToContainer}]`)
		s.ready(pod)
		for _, text := range []string{"first", "second"} {
			s.mountFile(inner, text)
			s.until("the container's view of the mount", text, func() string { return s.sh(pod, "cat /host/inner/file 2>/dev/null || true") })
			s.sh(pod, "ls -lR /host >/dev/null")
			began := time.Now()
			s.until("the node's umount", "", func() string {
				if err := unix.Unmount(inner, 0); err != nil {
					return err.Error()
				}
				return ""
			})
			if took := time.Since(began); took > 10*time.Second {
				s.Errorf("the umount took %.1f s", took.Seconds())
			}
			s.until("the container's view after the umount", "", func() string { return s.sh(pod, "ls /host/inner") })
		}
	})
}

// mountFile mounts a file system with a file.
func (s *stage) mountFile(dir, text string) {
	s.Helper()
	err := errors.Join(unix.Mount("tmpfs", dir, "tmpfs", 0, ""), os.WriteFile(filepath.Join(dir, "file"), []byte(text), 0o600))
	if err != nil {
		s.Fatal(err)
	}
}
