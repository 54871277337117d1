package container

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// In a user namespace the names of the pod's UTS namespace are the agent's to set.
func TestTakeUTSNames(t *testing.T) {
	all := utsNames{"h", "d"}
	for name, test := range map[string]struct {
		namespace specs.LinuxNamespaceType
		path      string
		sysctls   map[string]string
		want      utsNames
	}{
		"user namespace":         {specs.UserNamespace, "/ns/uts", nil, all},
		"and a sysctl":           {specs.UserNamespace, "/ns/uts", map[string]string{"kernel.domainname": "s"}, utsNames{"h", "s"}},
		"no user namespace":      {specs.PIDNamespace, "/ns/uts", nil, utsNames{}},
		"its own UTS namespace":  {specs.UserNamespace, "", nil, utsNames{}},
		"another kind of sysctl": {specs.UserNamespace, "/ns/uts", map[string]string{"kernel/shmmni": "1"}, all},
	} {
		spec := &specs.Spec{Hostname: "h", Domainname: "d", Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{{Type: test.namespace}}, Sysctl: test.sysctls,
		}}
		got := takeUTSNames(spec, Placement{UTS: test.path})
		left := utsNames{spec.Hostname, spec.Domainname}
		if got != test.want || (left == utsNames{}) != (got != utsNames{}) {
			t.Errorf("%s: took %v, left %v", name, got, left)
		}
		if _, left := spec.Linux.Sysctl["kernel.domainname"]; left {
			t.Errorf("%s: its sysctl is left", name)
		}
	}
}

// Only the names that are given are set, and only in that namespace.
func TestSetUTSNames(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a UTS namespace needs root")
	}
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUTS}
	in, err := cmd.StdinPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	path := fmt.Sprintf("/proc/%d/ns/uts", cmd.Process.Pid)
	for _, names := range []utsNames{{host: "pod", domain: "old"}, {domain: "example.org"}, {}} {
		if err := setUTSNames(path, names); err != nil {
			t.Fatal(err)
		}
	}
	if got := namesAt(t, path); got != (utsNames{"pod", "example.org"}) {
		t.Errorf("the names are %v", got)
	}
	if got := namesAt(t, "/proc/self/ns/uts"); got.host == "pod" || got.domain == "example.org" {
		t.Errorf("the test's own names are %v", got)
	}
}

func namesAt(t *testing.T, path string) (names utsNames) {
	t.Helper()
	thread, err := newThread(0)
	if err != nil {
		t.Fatal(err)
	}
	defer thread.close()
	err = thread.do(func() error {
		var uts unix.Utsname
		err := errors.Join(enter(unix.CLONE_NEWUTS, path), unix.Uname(&uts))
		names = utsNames{unix.ByteSliceToString(uts.Nodename[:]), unix.ByteSliceToString(uts.Domainname[:])}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
