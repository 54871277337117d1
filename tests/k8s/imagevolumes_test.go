package k8s

import (
	"fmt"
	"testing"
)

// volumeImage is an image with programs, and a page in the directory tag.
const volumeImage = "registry.k8s.io/k8s-staging-cri-tools/test-image-tag:test"

// imageVolumes are an image that the node has, a directory of it, and an image
// that the kubelet pulls.
const imageVolumes = `
	volumes:
	- {name: there, image: {reference: %[1]s, pullPolicy: Never}}
	- {name: pulled, image: {reference: "registry.k8s.io/k8s-staging-cri-tools/test-image-latest:latest"}}
	initContainers:
	- {name: init, image: $BUSYBOX, command: [cat, /there/tag/index.html], volumeMounts: [{name: there, mountPath: /there}]}
	containers:
	- name: c
	  image: $BUSYBOX
	  command: [sleep, "1000"]
	  env: [{name: DIR, value: tag}]
	  volumeMounts:
	  - {name: there, mountPath: /there}
	  - {name: there, mountPath: /part, subPath: tag}
	  - {name: there, mountPath: /named, subPathExpr: $(DIR)}
	  - {name: pulled, mountPath: /pulled}
	- name: other
	  image: $BUSYBOX
	  command: [sleep, "1000"]
	  securityContext: {runAsUser: 1000}
	  volumeMounts: [{name: there, mountPath: /there}]`

// imageVolumesSeen is what lookAtImages prints: nothing can be written, programs
// can be run, and modes are the image's.
const imageVolumesSeen = `<html><body>It works</body></html>
<html><body>It works</body></html>
k8s-staging-cri-tools/test-image-latest:latest
1777
touch: /there/tmp/new: Read-only file system
rm: can't remove '/part/index.html': Read-only file system
mkdir: can't create directory '/pulled/new': Read-only file system`

const lookAtImages = "cat /part/index.html /named/index.html /pulled/name; /there/bin/stat -c %a /there/tmp; " +
	"{ touch /there/tmp/new; rm /part/index.html; mkdir /pulled/new; } 2>&1; true"

// Images as volumes, whole and in part, for several containers. A directory that
// an image lacks, or an image that the node does not have, is the same error.
func TestImageVolumes(t *testing.T) {
	both(t, func(s *stage) {
		s.ready(s.pod("puller", fmt.Sprintf("containers: [{name: c, image: %q, command: [sleep, '1000']}]", volumeImage)))
		pod := s.pod("images", fmt.Sprintf(imageVolumes, volumeImage))
		s.ready(pod)
		s.same("what the container sees", s.sh(pod, lookAtImages), imageVolumesSeen)
		s.same("the other container's page", s.must("exec", pod, "-c", "other", "--", "cat", "/there/tag/index.html"), "<html><body>It works</body></html>\n")
		bad := s.pod("bad-images", fmt.Sprintf(`
			volumes:
			- {name: there, image: {reference: %s}}
			containers:
			- {name: c, image: $BUSYBOX, volumeMounts: [{name: there, mountPath: /part, subPath: missing}]}`, volumeImage))
		s.until("why a container with a missing directory waits", "CreateContainerError", func() string { return s.waits(bad) })
		none := s.pod("no-image", `
			volumes: [{name: none, image: {reference: "registry.k8s.io/none/none:1", pullPolicy: Never}}]
			containers: [{name: c, image: $BUSYBOX, volumeMounts: [{name: none, mountPath: /none}]}]`)
		s.until("why a container with a missing image waits", "ErrImageNeverPull", func() string { return s.waits(none) })
	})
}

// waits returns the reason why a pod's only container waits.
func (s *stage) waits(pod string) string {
	s.Helper()
	return s.get(pod, ".status.containerStatuses[*].state.waiting.reason")
}
