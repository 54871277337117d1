package k8s

import (
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A memory volume is as large as it is with runc, and can have as many files: without a
// sizeLimit it has the limit of its containers, without the pod's overhead.
func TestMemoryVolumes(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("memory", `
			volumes:
			- {name: small, emptyDir: {medium: Memory, sizeLimit: 20Mi}}
			- {name: large, emptyDir: {medium: Memory}}
			containers:
			- name: c
			  image: $BUSYBOX
			  command: [sleep, "1000"]
			  resources: {limits: {memory: 96Mi, cpu: 500m}}
			  volumeMounts: [{name: small, mountPath: /small}, {name: large, mountPath: /large}]`)
		s.ready(pod)
		s.same("their sizes in MiB", s.sh(pod, "df -m /small /large | awk 'NR > 1 {print $2}'"), "20\n96")
		s.same("a write beyond the limit", s.sh(pod, "head -c 25m /dev/zero >/small/file 2>/dev/null; stat -c %s /small/file"), fmt.Sprint(20<<20))
		var node unix.Statfs_t
		if err := unix.Statfs(filepath.Join("/var/lib/kubelet/pods", s.get(pod, ".metadata.uid"), "volumes/kubernetes.io~empty-dir/large"), &node); err != nil {
			s.Fatal(err)
		}
		s.same("the files of the large one", s.sh(pod, "stat -f -c %c /large"), fmt.Sprint(node.Files))
	})
}

// The kubelet evicts pods whose containers use more disk than their limits allow: in a
// volume, and in their root file system.
func TestEvictionByUsage(t *testing.T) {
	both(t, func(s *stage) {
		const spec = `
			volumes: [{name: v, emptyDir: {sizeLimit: %s}}]
			containers:
			- name: c
			  image: $BUSYBOX
			  command: [sh, -c, "%s; sleep 1000"]
			  resources: {limits: {ephemeral-storage: 12Mi}}
			  volumeMounts: [{name: v, mountPath: /v}]`
		messages := map[string]string{
			s.pod("of-volume", fmt.Sprintf(spec, "4Mi", "head -c 8m /dev/zero >/v/file")): `Usage of EmptyDir volume "v" exceeds the limit "4Mi". `,
			s.pod("of-root", fmt.Sprintf(spec, "100Mi", "head -c 20m /dev/zero >/file")):  "Pod ephemeral local storage usage exceeds the total limit of containers 12Mi. ",
		}
		for pod, message := range messages {
			s.wait(pod, "jsonpath={.status.reason}=Evicted")
			s.same("why "+pod+" was evicted", s.get(pod, ".status.message"), message)
		}
	})
}
