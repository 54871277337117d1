package guesttest

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// A tmpfs without a size holds what its container may use, also in a user namespace.
func TestGuestTmpfsOfALimit(t *testing.T) {
	m := guestOnly(t)
	for id, change := range map[string]func(*specs.Spec){"tmpfs": func(*specs.Spec) {}, "tmpfs-user": inUserNamespace} {
		spec := shell("stat -f -c '%S %b %c' /ram")
		spec.Linux.Resources.Memory = &specs.LinuxMemory{Limit: ptr(int64(400 << 20))}
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/ram", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev"}})
		change(spec)
		if r := m.run(t, id, spec); r.out != "4096 102400 102400\n" {
			t.Errorf("%s: %+v", id, r)
		}
	}
}
