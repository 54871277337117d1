package k8s

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/tests/k8s/node"
)

// noting is a container that writes what happens to it into a file of the node
// named like the container, and a hook before its end.
func noting(name, prepare, hook string) string {
	return `
			- name: ` + name + `
			  image: $BUSYBOX
			  command: [sh, -c, "trap 'echo term >>/log/` + name + `; exit 0' TERM; ` + prepare + `touch /tmp/up; sleep 1000 & wait"]
			  readinessProbe: {exec: {command: [test, -e, /tmp/up]}, periodSeconds: 1, timeoutSeconds: 20}
			  lifecycle: {preStop: ` + hook + `}
			  volumeMounts: [{name: log, mountPath: /log}]`
}

// Hooks before a container's end run to their end before it gets its signal, in
// each way; one that fails does not keep the container alive.
func TestPreStopHooks(t *testing.T) {
	const server = `mkdir -p /www/cgi-bin; printf '#!/bin/sh\necho hook >>/log/asked; echo; echo x' >/www/cgi-bin/h; chmod +x /www/cgi-bin/h; httpd -p 80 -h /www; `
	both(t, func(s *stage) {
		log := filepath.Join(node.Dir, "hooks-"+s.runtime)
		pod := s.pod("hooks", `
			volumes: [{name: log, hostPath: {path: `+log+`, type: DirectoryOrCreate}}]
			containers:`+
			noting("program", "", `{exec: {command: [sh, -c, "echo hook >>/log/program; sleep 1; echo done >>/log/program"]}}`)+
			noting("asked", server, `{httpGet: {port: 80, path: /cgi-bin/h}}`)+
			noting("fails", "", `{exec: {command: [sh, -c, "echo hook >>/log/fails; exit 4"]}}`))
		s.ready(pod)
		s.must("delete", "pod", pod, "--grace-period=60")
		for name, want := range map[string]string{"program": "hook\ndone\nterm\n", "asked": "hook\nterm\n", "fails": "hook\nterm\n"} {
			text, err := os.ReadFile(filepath.Join(log, name))
			if err != nil {
				s.Error(err)
			}
			s.same(name, string(text), want)
		}
	})
}
