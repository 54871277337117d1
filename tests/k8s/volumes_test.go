package k8s

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/k8s/node"
)

// Every kind of volume that needs no driver, and its live update.
func TestVolumes(t *testing.T) {
	both(t, func(s *stage) {
		shared := filepath.Join(node.Dir, "shared-"+s.runtime)
		s.settings("first")
		pod := s.pod("volumes", `
			volumes:
			- {name: scratch, emptyDir: {}}
			- {name: memory, emptyDir: {medium: Memory, sizeLimit: 16Mi}}
			- {name: config, configMap: {name: settings-$RUNTIME}}
			- {name: secret, secret: {secretName: settings-$RUNTIME, defaultMode: 0400}}
			- {name: host, hostPath: {path: `+shared+`, type: DirectoryOrCreate}}
			- name: all
			  projected:
			    sources:
			    - configMap: {name: settings-$RUNTIME, items: [{key: key, path: from/config}]}
			    - secret: {name: settings-$RUNTIME, items: [{key: key, path: from/secret}]}
			    - downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}
			    - serviceAccountToken: {path: token, expirationSeconds: 600}
			containers:
			- name: a
			  image: $BUSYBOX
			  command: [sleep, "1000"]
			  volumeMounts:
			  - {name: scratch, mountPath: /scratch}
			  - {name: memory, mountPath: /memory}
			  - {name: config, mountPath: /config}
			  - {name: config, mountPath: /one/key, subPath: key}
			  - {name: secret, mountPath: /secret, readOnly: true}
			  - {name: all, mountPath: /all}
			  - {name: host, mountPath: /host}
			  - {name: host, mountPath: /part, subPath: part}
			- name: b
			  image: $BUSYBOX
			  command: [sleep, "1000"]
			  volumeMounts: [{name: scratch, mountPath: /scratch}, {name: memory, mountPath: /memory}]`)
		s.ready(pod)
		s.writesVolumes(pod, shared)
		s.readsVolumes(pod)
		s.updates(pod)
	})
}

// settings creates or changes a config map and a secret.
func (s *stage) settings(value string) {
	s.Helper()
	s.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings-$RUNTIME}\ndata: {key: " + value + "}\n---\n" +
		"apiVersion: v1\nkind: Secret\nmetadata: {name: settings-$RUNTIME}\nstringData: {key: " + value + "}\n")
}

// writesVolumes writes where a pod may, and reads it elsewhere.
func (s *stage) writesVolumes(pod, shared string) {
	s.sh(pod, "echo from a >/scratch/file; echo from a >/memory/file; echo from a >/host/file; echo from a >/part/file")
	s.same("the other container's view", s.must("exec", pod, "-c", "b", "--", "cat", "/scratch/file", "/memory/file"), "from a\nfrom a\n")
	for _, name := range []string{"file", "part/file"} {
		text, err := os.ReadFile(filepath.Join(shared, name))
		if err != nil || string(text) != "from a\n" {
			s.Errorf("the node's view of %s: %q, %v", name, text, err)
		}
	}
	if err := os.WriteFile(filepath.Join(shared, "new"), []byte("from the node"), 0o600); err != nil {
		s.Fatal(err)
	}
	s.until("the container's view of the node's file", "from the node", func() string { return s.sh(pod, "cat /host/new 2>/dev/null || true") })
	s.same("the size of memory", s.sh(pod, "df -m /memory | awk 'NR == 2 {print $2}'"), "16")
	if r := s.kubectl("exec", pod, "--", "sh", "-c", "echo >/secret/key"); r.Code == 0 || !strings.Contains(r.Errors, "Read-only") {
		s.Errorf("writing a secret: %+v", r)
	}
}

// readsVolumes reads what the kubelet has written.
func (s *stage) readsVolumes(pod string) {
	s.same("config", s.sh(pod, "cat /config/key /one/key"), "firstfirst")
	s.same("secret", s.sh(pod, "cat /secret/key; stat -Lc ' %a' /secret/key"), "first 400")
	s.same("projected", s.sh(pod, "cat /all/from/config /all/from/secret; grep -c case= /all/labels"), "firstfirst1")
	if token := s.sh(pod, "cat /all/token"); strings.Count(token, ".") != 2 {
		s.Errorf("token: %q", token)
	}
}

// updates changes what the volumes were made from. A file mounted by its subPath
// keeps its content.
func (s *stage) updates(pod string) {
	began := time.Now()
	s.settings("second")
	s.must("label", "pod", pod, "--overwrite", "case=changed")
	s.until("after the update", "second second second second changed", func() string {
		return s.sh(pod, `echo $(cat /config/key) $(cat /secret/key) $(cat /all/from/config) $(cat /all/from/secret) $(sed -n 's/^case="\(.*\)"/\1/p' /all/labels)`)
	})
	s.Logf("volumes were updated after %.0f s", time.Since(began).Seconds())
	s.same("the file mounted by its subPath", s.sh(pod, "cat /one/key"), "first")
}

// A container's last words arrive, from its file or from its log.
func TestTerminationMessages(t *testing.T) { both(t, lastWords) }

func lastWords(s *stage) {
	pod := s.pod("words", `
		restartPolicy: Never
		containers:
		- {name: file, image: $BUSYBOX, command: [sh, -c, "echo -n last words >/dev/termination-log; exit 3"]}
		- name: own
		  image: $BUSYBOX
		  command: [sh, -c, "echo -n my own file >/tmp/words"]
		  terminationMessagePath: /tmp/words
		- name: log
		  image: $BUSYBOX
		  command: [sh, -c, "echo -n from the log; exit 4"]
		  terminationMessagePolicy: FallbackToLogsOnError`)
	s.wait(pod, "jsonpath={.status.phase}=Failed")
	for name, want := range map[string]string{"file": "last words", "own": "my own file", "log": "from the log"} {
		s.same(name, s.get(pod, ".status.containerStatuses[?(@.name=='"+name+"')].state.terminated.message"), want)
	}
}
