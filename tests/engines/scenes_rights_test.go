package engines

import (
	"context"
	"fmt"
)

// What a container may do: capabilities, devices, kernel settings.
func rightScenes() []scene {
	return []scene{
		{name: "capabilities", play: playCapabilities},
		{name: "privileged", needs: Privileged, play: playPrivileged},
		{name: "devices", play: playDevices},
		{name: "sysctl", play: playSysctl},
	}
}

const (
	effective = "grep CapEff /proc/self/status | awk '{print $2}'"
	filtered  = "grep -w Seccomp: /proc/self/status | awk '{print $2}'"
)

func playCapabilities(ctx context.Context, s *stage) {
	// Each container is a boot.
	r := s.script(ctx, effective+"; "+filtered+"; ip link add type veth 2>/dev/null; echo $?")
	s.note("default", r.line(0))
	s.expect("seccomp", r.line(1), "2")
	s.expect("link without", r.line(2) != "0", "true")
	r = s.script(ctx, effective+"; ip link set dev lo mtu 1500; ip link show lo | grep -o 'mtu [0-9]*'", "--cap-add", "NET_ADMIN", "--cap-add", "SYS_TIME")
	s.note("added", r.line(0))
	s.expect("link with", r.line(1), "mtu 1500")
	s.expect("all dropped", s.script(ctx, effective, "--cap-drop", "ALL"), `exit 0 "0000000000000000\n"`)
	s.expect("one kept", s.script(ctx, effective, "--cap-drop", "ALL", "--cap-add", "CHOWN"), `exit 0 "0000000000000001\n"`)
	r = s.script(ctx, effective+"; "+filtered+"; grep NoNewPrivs /proc/self/status | awk '{print $2}'",
		"--user", "1000", "--security-opt", "no-new-privileges", "--security-opt", "seccomp=unconfined")
	s.note("of a user", r.line(0))
	s.expect("unconfined", r.line(1), "0")
	s.expect("no new privileges", r.line(2), "1")
}

func playPrivileged(ctx context.Context, s *stage) {
	r := s.script(ctx, effective+"; "+filtered+"; mkdir /mnt; mount -t tmpfs none /mnt; grep -c ' /mnt tmpfs' /proc/mounts; "+
		"echo 0 >/proc/sys/kernel/printk_ratelimit_burst; echo $?", "--privileged")
	s.note("capabilities", fmt.Sprintf("exit %d %s", r.code, r.line(0)))
	s.expect("seccomp", r.line(1), "0")
	s.expect("mount", r.line(2), "1")
	s.expect("proc is writable", r.line(3), "0")
	s.expect("not mounted", s.script(ctx, "mount -t tmpfs none /tmp 2>/dev/null; test $? -ne 0").code, "0")
}

func playDevices(ctx context.Context, s *stage) {
	s.expect("zero by another name", s.script(ctx, "head -c 3 /dev/nought | od -An -tx1", "--device", "/dev/zero:/dev/nought"), `exit 0 " 00 00 00\n"`)
	s.expect("fuse", s.script(ctx, "test -c /dev/fuse; echo $?", "--device", "/dev/fuse"), `exit 0 "0\n"`)
	// EBADFD is the driver's answer: no interface is attached (linux, drivers/net/tun.c).
	s.expect("tun", s.script(ctx, "cat /dev/net/tun 2>&1 | grep -c 'bad state'", "--device", "/dev/net/tun"), `exit 0 "1\n"`)
	s.note("no such device", s.script(ctx, "true", "--device", "/dev/no-such-device").code)
}

func playSysctl(ctx context.Context, s *stage) {
	s.expect("network", s.script(ctx, "cat /proc/sys/net/ipv4/ip_unprivileged_port_start", "--sysctl", "net.ipv4.ip_unprivileged_port_start=77"), `exit 0 "77\n"`)
	s.expect("IPC", s.script(ctx, "cat /proc/sys/kernel/msgmax", "--sysctl", "kernel.msgmax=12345"), `exit 0 "12345\n"`)
	s.note("unknown", s.script(ctx, "true", "--sysctl", "net.no.such.thing=1").code)
	s.note("of the host", s.script(ctx, "true", "--sysctl", "vm.swappiness=1").code)
}
