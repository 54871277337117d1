package k8s

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/k8s/node"
)

// mountedBelow makes a directory of the node with another file system below it,
// until the case ends.
func (s *stage) mountedBelow(name string) string {
	s.Helper()
	dir := filepath.Join(node.Dir, name+"-"+s.runtime)
	inner := filepath.Join(dir, "inner")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		s.Fatal(err)
	}
	s.mountFile(inner, "word")
	s.Cleanup(func() {
		if err := errors.Join(unix.Unmount(inner, unix.MNT_DETACH), os.RemoveAll(dir)); err != nil {
			s.Error(err)
		}
	})
	return dir
}

// A read-only volume is that with all that is mounted below it, if its mount says
// so; an image can be one; and a part's name may have variables.
func TestKindsOfMounts(t *testing.T) {
	const try = `for d in recursive possible plain; do for f in new inner/new; do touch /$d/$f 2>/dev/null && rm /$d/$f && echo $d/$f; done; done
		cat /recursive/inner/file; echo; touch /part/file; find /whole -type f; test -x /image/bin/busybox && touch /image/x 2>&1 | grep -o Read-only`
	both(t, func(s *stage) {
		dir := s.mountedBelow("readonly")
		pod := s.pod("mountkinds", `
			volumes:
			- {name: host, hostPath: {path: `+dir+`, type: Directory}}
			- {name: scratch, emptyDir: {}}
			- {name: image, image: {reference: $BUSYBOX, pullPolicy: IfNotPresent}}
			containers:
			- name: c
			  image: $BUSYBOX
			  command: [sleep, "1000"]
			  env: [{name: CASE, valueFrom: {fieldRef: {fieldPath: "metadata.labels['case']"}}}]
			  volumeMounts:
			  - {name: host, mountPath: /recursive, readOnly: true, recursiveReadOnly: Enabled}
			  - {name: host, mountPath: /possible, readOnly: true, recursiveReadOnly: IfPossible}
			  - {name: host, mountPath: /plain, readOnly: true}
			  - {name: scratch, mountPath: /part, subPathExpr: $(CASE)/x}
			  - {name: scratch, mountPath: /whole}
			  - {name: image, mountPath: /image}`)
		s.ready(pod)
		s.same("what may be written", s.sh(pod, try), "plain/inner/new\nword\n/whole/mountkinds/x/file\nRead-only")
		var modes []string
		for path := range strings.FieldsSeq("recursive possible plain") {
			modes = append(modes, s.get(pod, ".status.containerStatuses[0].volumeMounts[?(@.mountPath=='/"+path+"')].recursiveReadOnly"))
		}
		s.same("as the kubelet sees it", strings.Join(modes, " "), "Enabled Enabled Disabled")
	})
}
