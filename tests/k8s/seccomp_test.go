package k8s

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// profilesDir is where the kubelet finds profiles by their names.
const profilesDir = "/var/lib/kubelet/seccomp"

// profile returns a seccomp profile that has an action for mkdir(2).
func profile(action, more string) string {
	return `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "` + action + `"}]` + more + `}`
}

// profiled is a container with a seccomp profile, a file of profilesDir or a
// type.
func profiled(name, kind string) string {
	if strings.HasSuffix(kind, ".json") {
		kind = "Localhost, localhostProfile: " + kind
	}
	return `
			- name: ` + name + `
			  image: $BUSYBOX
			  command: [sh, -c, "mkdir /new; echo $? $(grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status | cut -f 2)"]
			  securityContext: {allowPrivilegeEscalation: false, seccompProfile: {type: ` + kind + `}}`
}

// Containers have the profiles that they name. One that asks for a listener, or
// that the kernel cannot have, does not start, and the pod's events say why.
func TestSeccompProfiles(t *testing.T) {
	both(t, func(s *stage) {
		if s.runtime == kata {
			s.configure("90-seccomp.toml", "[runtime]\ndisable_guest_seccomp = false\n")
		}
		s.profiles(map[string]string{
			"refuses.json": profile("SCMP_ACT_ERRNO", ""),
			"listens.json": profile("SCMP_ACT_NOTIFY", `, "listenerPath": "/run/no.sock"`),
			"unknown.json": profile("SCMP_ACT_NONE", ""),
		})
		pod := s.pod("seccomp", `
			restartPolicy: Never
			containers:`+profiled("plain", "Unconfined")+profiled("usual", "RuntimeDefault")+profiled("own", "refuses.json")+
			profiled("listens", "listens.json")+profiled("unknown", "unknown.json"))
		s.wait(pod, "jsonpath={.status.phase}=Failed")
		for name, want := range map[string]string{"plain": "0 1 0", "usual": "0 1 2", "own": "1 1 2"} {
			lines := strings.Split(strings.TrimSpace(s.must("logs", pod, "-c", name)), "\n")
			s.same(name, lines[len(lines)-1], want)
		}
		events := s.must("get", "events", "--field-selector", "reason=Failed,involvedObject.name="+pod, "-o", "jsonpath={.items[*].message}")
		listener := map[string]string{runc: "seccomp agent", kata: "linux.seccomp.listenerPath"}[s.runtime]
		for _, want := range []string{listener, "SCMP_ACT_NONE is not a valid action"} {
			if !strings.Contains(events, want) {
				s.Errorf("events %q do not say %q", events, want)
			}
		}
		if strings.Contains(events, "\n") {
			s.Errorf("an event has several lines: %q", events)
		}
	})
}

// profiles writes the node's profiles.
func (s *stage) profiles(texts map[string]string) {
	s.Helper()
	if err := os.MkdirAll(profilesDir, 0o755); err != nil {
		s.Fatal(err)
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(profilesDir, name), []byte(text), 0o600); err != nil {
			s.Fatal(err)
		}
	}
}
