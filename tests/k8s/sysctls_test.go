package k8s

import (
	"context"
	"testing"
)

// The kubelet allows a pod to set what it calls unsafe: settings of its IPC and
// network namespaces, in which a guest has its own.
func TestUnsafeSysctls(t *testing.T) {
	if err := bed.node.SetKubelet(t.Context(), "allowedUnsafeSysctls: [net.*, kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*]\n"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bed.node.SetKubelet(context.WithoutCancel(t.Context()), ""); err != nil {
			t.Error(err)
		}
	}()
	both(t, func(s *stage) {
		pod := s.pod("sysctls", `
			securityContext:
			  sysctls:
			  - {name: net.core.somaxconn, value: "77"}
			  - {name: net.ipv4.ip_forward, value: "1"}
			  - {name: net/ipv4/conf/eth0/rp_filter, value: "2"}
			  - {name: net.ipv4.tcp_rmem, value: 4096 87380 999999}
			  - {name: kernel.shmmax, value: "1048576"}
			  - {name: kernel.msgmax, value: "4096"}
			  - {name: kernel.sem, value: 100 200 300 400}
			  - {name: fs.mqueue.msg_max, value: "11"}
			containers:
			- {name: a, image: $BUSYBOX, command: [sleep, "1000"]}
			- {name: b, image: $BUSYBOX, command: [sleep, "1000"]}`)
		s.ready(pod)
		for _, container := range []string{"a", "b"} {
			got := s.must("exec", pod, "-c", container, "--", "sh", "-c", "cd /proc/sys; cat net/core/somaxconn net/ipv4/ip_forward net/ipv4/conf/eth0/rp_filter "+
				"net/ipv4/tcp_rmem kernel/shmmax kernel/msgmax kernel/sem fs/mqueue/msg_max")
			s.same("settings in "+container, got, "77\n1\n2\n4096\t87380\t999999\n1048576\n4096\n100\t200\t300\t400\n11\n")
		}
	})
}
