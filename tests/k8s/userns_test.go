package k8s

import "testing"

// A pod with a user namespace starts with a sysctl of its IPC namespace. runc cannot
// run it here: mounts cover a part of this node's /proc (hideSettings), and the kernel
// then allows no new one in a user namespace.
func TestUserNamespace(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		pod := s.pod("userns", `
			hostUsers: false
			securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: "1"}]}
			containers:
			- {name: c, image: $BUSYBOX, command: [sleep, "1000"]}`)
		s.ready(pod)
		s.same("its namespace and setting", s.sh(pod, "grep -c 4294967295 /proc/self/uid_map; cat /proc/sys/kernel/shm_rmid_forced"), "0\n1")
	})
}
