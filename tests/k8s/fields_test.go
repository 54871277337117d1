package k8s

import (
	"strings"
	"testing"
)

// fields is a pod that sets what most pods leave alone.
const fields = `
	restartPolicy: Never
	hostname: named
	hostAliases: [{ip: 192.0.2.7, hostnames: [elsewhere.test]}]
	dnsPolicy: None
	dnsConfig: {nameservers: [192.0.2.53], searches: [pods.test], options: [{name: ndots, value: "3"}]}
	securityContext:
	  runAsUser: 1000
	  runAsGroup: 3000
	  fsGroup: 2000
	  supplementalGroups: [4000]
	  sysctls: [{name: net.ipv4.ip_local_port_range, value: 20000 30000}]
	volumes: [{name: scratch, emptyDir: {}}]
	containers:
	- name: c
	  image: $BUSYBOX
	  workingDir: /tmp
	  command: [sh, -c, "$(SCRIPT)"]
	  env:
	  - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
	  - {name: LIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
	  - name: SCRIPT
	    value: |
	      echo "user $(id -u) $(id -g) $(id -G)"
	      touch /scratch/file && stat -c 'scratch %g' /scratch/file
	      echo "name $(hostname) $(grep -c elsewhere.test /etc/hosts)"
	      echo "dns $(grep -v '^#' /etc/resolv.conf | tr '\n' ' ')"
	      echo "sysctl $(cat /proc/sys/net/ipv4/ip_local_port_range)"
	      echo "env $NODE $LIMIT $PWD"
	      grep -E '^(CapEff|NoNewPrivs)' /proc/self/status
	      touch /file 2>&1 | grep -o 'Read-only.*'
	      mkdir /proc/sys/file 2>&1 | grep -c .
	  resources: {limits: {memory: 64Mi, cpu: 500m}}
	  securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
	  volumeMounts: [{name: scratch, mountPath: /scratch}]`

const fieldsSeen = `user 1000 3000 3000 2000 4000
scratch 2000
name named 1
dns search pods.test nameserver 192.0.2.53 options ndots:3
sysctl 20000 30000
env node 64 /tmp
CapEff: 0000000000000000
NoNewPrivs: 1
Read-only file system
1`

// What a pod's specification says holds in its containers.
func TestPodFields(t *testing.T) {
	both(t, func(s *stage) {
		pod := s.pod("fields", fields)
		s.succeeded(pod)
		var lines []string
		for line := range strings.Lines(s.must("logs", pod)) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		s.same("what the container sees", strings.Join(lines, "\n"), fieldsSeen)
	})
}

// Pods reach each other and the node's probes reach them, whatever runs them.
func TestPodsReachEachOther(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		web := `
			containers:
			- {name: web, image: $WEB, ports: [{containerPort: 80}], readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}}
			- {name: client, image: $BUSYBOX, command: [sleep, "1000"]}`
		pods := []string{s.pod("web", web)}
		s.runtime = runc
		pods = append(pods, s.pod("web", web))
		for _, pod := range pods {
			s.ready(pod)
		}
		for _, from := range pods {
			for _, to := range pods {
				page := s.must("exec", from, "-c", "client", "--", "sh", "-c", "printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 20 "+s.get(to, ".status.podIP")+" 80")
				if !strings.Contains(page, "<html>") {
					s.Errorf("%s gets from %s: %q", from, to, page)
				}
			}
		}
	})
}
