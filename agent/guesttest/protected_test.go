package guesttest

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// A user's file in /dev/shm does not get what root of another container writes to a name
// there, as on a host. It can be read.
func TestGuestProtectsFiles(t *testing.T) {
	m := guestOnly(t)
	shm := func(spec *specs.Spec) *specs.Spec {
		spec.Mounts = append(spec.Mounts, specs.Mount{Type: "tmpfs", Source: "shm", Destination: "/dev/shm", Options: []string{"mode=1777"}})
		return spec
	}
	m.start(t, "protected", shm(shell("trap 'exit 7' TERM; while :; do sleep 1000 & wait $!; done")))
	users := process("cd /dev/shm && echo mine >f && mkfifo p && ln -s /etc/passwd l && chmod 666 f p")
	users.User = specs.User{UID: 1000, GID: 1000}
	if r := m.exec(t, "protected", "user", users); r.errs != "" || r.exit.GetStatus() != 0 {
		t.Fatalf("the user: %+v", r)
	}
	r := m.exec(t, "protected", "root", process("cd /dev/shm; cat f; for name in f p; do true 3<>$name || echo no $name; done; cat l || echo no l"))
	if r.out != "mine\nno f\nno p\nno l\n" {
		t.Errorf("root: %+v", r)
	}
}
