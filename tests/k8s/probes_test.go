package k8s

import "testing"

// The kubelet's probes reach a container in each way: by a command, a
// connection, a request.
func TestProbes(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("probed", `
			containers:
			- name: c
			  image: $BUSYBOX
			  command: [sh, -c, "touch /tmp/live; exec httpd -f -p 80 -h /tmp"]
			  startupProbe: {tcpSocket: {port: 80}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 60}
			  readinessProbe: {exec: {command: [test, -e, /tmp/ready]}, periodSeconds: 1, timeoutSeconds: 20}
			  livenessProbe: {httpGet: {path: /live, port: 80}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 2}`)
		started := ".status.containerStatuses[0]['started','ready','restartCount']"
		s.until("started", "true false 0", func() string { return s.get(pod, started) })
		s.sh(pod, "touch /tmp/ready")
		s.until("ready", "true true 0", func() string { return s.get(pod, started) })
		s.sh(pod, "rm /tmp/ready")
		s.until("not ready", "true false 0", func() string { return s.get(pod, started) })
		s.sh(pod, "rm /tmp/live")
		s.until("started again", "true false 1", func() string { return s.get(pod, started) })
		s.same("how it ended", s.get(pod, ".status.containerStatuses[0].lastState.terminated.exitCode"), "137")
	})
}
