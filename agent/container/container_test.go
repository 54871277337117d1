package container

import (
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestMergeResources(t *testing.T) {
	to := &cgroups.Resources{Memory: 10, PidsLimit: ptr(int64(5)), CpuQuota: 7}
	mergeResources(to, &cgroups.Resources{Memory: 20, CpuShares: 3, PidsLimit: ptr(int64(0))})
	want := &cgroups.Resources{Memory: 20, PidsLimit: ptr(int64(0)), CpuQuota: 7, CpuShares: 3}
	if diff := cmp.Diff(want, to); diff != "" {
		t.Error(diff)
	}
}

func TestNewRlimits(t *testing.T) {
	got, err := newRlimits([]specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1, Hard: 2}})
	if diff := cmp.Diff([]configs.Rlimit{{Type: unix.RLIMIT_NOFILE, Soft: 1, Hard: 2}}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := newRlimits([]specs.POSIXRlimit{{Type: "RLIMIT_MOOD"}}); !errdefs.IsInvalidArgument(err) {
		t.Error(err)
	}
}

func TestNewProcess(t *testing.T) {
	p, err := newProcess(&specs.Process{
		Args: []string{"a"}, Cwd: "/c", NoNewPrivileges: true,
		User:         specs.User{UID: 1, GID: 2, AdditionalGids: []uint32{3, 4}},
		ConsoleSize:  &specs.Box{Width: 1 << 20, Height: 24},
		Capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_KILL"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.UID != 1 || p.GID != 2 || !*p.NoNewPrivileges || p.ConsoleWidth != 1<<16-1 || p.ConsoleHeight != 24 ||
		!cmp.Equal(p.AdditionalGroups, []int{3, 4}) || p.Capabilities.Bounding[0] != "CAP_KILL" {
		t.Errorf("%+v", p)
	}
	if p, err := newProcess(&specs.Process{}); err != nil || p.Capabilities != nil {
		t.Errorf("capabilities that are not set must be the container's: %+v, %v", p, err)
	}
}

func TestCheckProcess(t *testing.T) {
	for name, p := range map[string]*specs.Process{
		"none": nil, "no args": {Cwd: "/"}, "no cwd": {Args: []string{"a"}}, "relative cwd": {Args: []string{"a"}, Cwd: "x"},
	} {
		if err := checkProcess(p); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkProcess(&specs.Process{Args: []string{"a"}, Cwd: "/"}); err != nil {
		t.Error(err)
	}
}

func TestCreateNeedsAbsoluteRoot(t *testing.T) {
	r := &Runtime{StateDir: t.TempDir()}
	process := &specs.Process{Args: []string{"a"}, Cwd: "/"}
	for _, root := range []*specs.Root{nil, {}, {Path: "rootfs"}} {
		_, _, err := r.Create(&specs.Spec{Process: process, Root: root}, testPlacement, Stdio{})
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%+v: %v", root, err)
		}
	}
}

func TestParseOOMKills(t *testing.T) {
	tests := []struct {
		events string
		want   uint64
	}{
		{"low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 9\n", 2},
		{"oom_kill 7", 7},
		{"oom 3\n", 0},
		{"", 0},
	}
	for _, test := range tests {
		if got, err := parseOOMKills(test.events); got != test.want || err != nil {
			t.Errorf("%q: %d, %v, want %d", test.events, got, err, test.want)
		}
	}
	if _, err := parseOOMKills("oom_kill many"); err == nil {
		t.Error("nonsense was read")
	}
}

func TestConsoleSockets(t *testing.T) {
	s, err := newConsoleSockets()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := unix.Sendmsg(int(s.child.Fd()), []byte("/dev/pts/0"), unix.UnixRights(int(w.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	got, err := s.receive()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := got.WriteString("through"); err != nil {
		t.Error(err)
	}
	_ = got.Close()
	buf := make([]byte, 10)
	if n, err := r.Read(buf); string(buf[:n]) != "through" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

func TestConsoleSocketsWithoutFile(t *testing.T) {
	s, err := newConsoleSockets()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if _, err := s.child.WriteString("no file"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.receive(); err == nil || !strings.Contains(err.Error(), "no file was sent") {
		t.Error(err)
	}
}
