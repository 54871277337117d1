package spec

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func rootWithUsers(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n",
		"group":  "root:x:0:\napp:x:1001:\noperator:x:37:app\n",
	} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestUser(t *testing.T) {
	root := rootWithUsers(t)
	for user, want := range map[string]specs.User{
		"":             {AdditionalGids: []uint32{0}},
		"app":          {UID: 1000, GID: 1001, AdditionalGids: []uint32{1001, 37}},
		"1000":         {UID: 1000, GID: 1001, AdditionalGids: []uint32{1001, 37}},
		"app:operator": {UID: 1000, GID: 37, AdditionalGids: []uint32{37}},
		"77:78":        {UID: 77, GID: 78, AdditionalGids: []uint32{78}},
	} {
		s, err := New(context.Background(), root, v1.ImageConfig{User: user, Cmd: []string{"x"}}, Options{ID: "c"})
		if err != nil {
			t.Errorf("user %q: %v", user, err)
			continue
		}
		if diff := cmp.Diff(want, s.Process.User, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("user %q: %s", user, diff)
		}
		if s.Root.Path != "rootfs" {
			t.Errorf("root %s", s.Root.Path)
		}
	}
	if _, err := New(context.Background(), root, v1.ImageConfig{User: "nobody", Cmd: []string{"x"}}, Options{ID: "c"}); err == nil || !strings.Contains(err.Error(), "user nobody") {
		t.Errorf("unknown user: %v", err)
	}
}

func TestImageAndOptions(t *testing.T) {
	image := v1.ImageConfig{Entrypoint: []string{"/entry"}, Cmd: []string{"cmd", "arg"}, Env: []string{"A=image", "B=image", "PATH=/p"}, WorkingDir: "/work"}
	tests := map[string]struct {
		o    Options
		args []string
		cwd  string
		env  []string
	}{
		"image alone":  {Options{}, []string{"/entry", "cmd", "arg"}, "/work", []string{"PATH=/p", "A=image", "B=image"}},
		"command":      {Options{Args: []string{"x"}}, []string{"/entry", "x"}, "/work", []string{"PATH=/p", "A=image", "B=image"}},
		"entry point":  {Options{Entrypoint: []string{"e"}}, []string{"e"}, "/work", []string{"PATH=/p", "A=image", "B=image"}},
		"both":         {Options{Entrypoint: []string{"e"}, Args: []string{"x"}}, []string{"e", "x"}, "/work", []string{"PATH=/p", "A=image", "B=image"}},
		"environment":  {Options{Env: []string{"A=mine", "C=", "B"}}, []string{"/entry", "cmd", "arg"}, "/work", []string{"PATH=/p", "A=mine", "C="}},
		"working dir":  {Options{Workdir: "/x/../y"}, []string{"/entry", "cmd", "arg"}, "/y", []string{"PATH=/p", "A=image", "B=image"}},
		"relative dir": {Options{Workdir: "y"}, []string{"/entry", "cmd", "arg"}, "/y", []string{"PATH=/p", "A=image", "B=image"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.o.ID = "c"
			s, err := New(context.Background(), t.TempDir(), image, test.o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]any{test.args, test.cwd, test.env}, []any{s.Process.Args, s.Process.Cwd, s.Process.Env}); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, err := New(context.Background(), t.TempDir(), v1.ImageConfig{}, Options{ID: "c"}); err == nil || !strings.Contains(err.Error(), "no command") {
		t.Errorf("without a command: %v", err)
	}
}

func TestSettings(t *testing.T) {
	s, err := New(context.Background(), t.TempDir(), v1.ImageConfig{Cmd: []string{"x"}}, Options{
		ID: "c", Hostname: "h", Terminal: true, ReadOnly: true, Memory: 64 << 20, CPUs: 1.5, NetNS: "/proc/1/fd/9",
		Annotations: map[string]string{"k": "v"},
	})
	if err != nil {
		t.Fatal(err)
	}
	network := slices.IndexFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.NetworkNamespace })
	got := []any{s.Hostname, s.Process.Terminal, s.Root.Readonly, *s.Linux.Resources.Memory.Limit, *s.Linux.Resources.CPU.Quota,
		s.Linux.Namespaces[network].Path, s.Annotations["k"], s.Linux.CgroupsPath}
	want := []any{"h", true, true, int64(64 << 20), int64(150000), "/proc/1/fd/9", "v", "/katabox/c"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if s.Linux.Seccomp == nil || len(s.Linux.MaskedPaths) == 0 || len(s.Process.Capabilities.Bounding) != 14 {
		t.Errorf("seccomp %v, masked %v, capabilities %v", s.Linux.Seccomp != nil, s.Linux.MaskedPaths, s.Process.Capabilities)
	}
	if s.Process.NoNewPrivileges {
		t.Error("set-uid programs, such as sudo, gain nothing")
	}
	if diff := cmp.Diff([]specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 524288}}, s.Process.Rlimits); diff != "" {
		t.Error(diff)
	}
	for _, m := range s.Mounts {
		if m.Destination == "/run" {
			t.Error("/run of the image is hidden")
		}
	}
}

func TestExec(t *testing.T) {
	root := rootWithUsers(t)
	s, err := New(context.Background(), root, v1.ImageConfig{Cmd: []string{"x"}, Env: []string{"A=1"}, WorkingDir: "/w"}, Options{ID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := Exec(context.Background(), root, s.Process, Options{Args: []string{"id"}, User: "app", Env: []string{"A=2"}, Terminal: true})
	if err != nil {
		t.Fatal(err)
	}
	if p.User.UID != 1000 || p.Cwd != "/w" || !p.Terminal || !slices.Contains(p.Env, "A=2") || p.Args[0] != "id" {
		t.Errorf("got %+v", p)
	}
	if s.Process.User.UID != 0 || s.Process.Terminal || !slices.Contains(s.Process.Env, "A=1") || s.Process.Args[0] != "x" {
		t.Errorf("the container's own was changed: %+v", s.Process)
	}
}

func TestParse(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]specs.Mount{
		dir + ":/data":       {Type: "bind", Source: dir, Destination: "/data", Options: []string{"rbind", "rprivate", "rw"}},
		dir + "/.:/data/:ro": {Type: "bind", Source: dir, Destination: "/data", Options: []string{"rbind", "rprivate", "ro"}},
	} {
		got, err := ParseVolume(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", text, err, diff)
		}
	}
	for _, text := range []string{"", dir, ":/x", dir + ":x", dir + ":/x:rox", dir + ":/x:ro:z", "/no/such:/x"} {
		if got, err := ParseVolume(text); err == nil {
			t.Errorf("volume %q: got %v", text, got)
		}
	}
	for text, want := range map[string]int64{"1": 1, "1b": 1, "4k": 4096, "512M": 512 << 20, "2g": 2 << 30} {
		if got, err := ParseMemory(text); got != want || err != nil {
			t.Errorf("memory %s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "m", "-1m", "0", "1.5g", "9999999999g", "1mm"} {
		if got, err := ParseMemory(text); err == nil {
			t.Errorf("memory %q: %d", text, got)
		}
	}
	for _, text := range []string{"", "0", "-1", "NaN", "Inf", "x"} {
		if got, err := ParseCPUs(text); err == nil {
			t.Errorf("cpus %q: %v", text, got)
		}
	}
}

func TestOrderMounts(t *testing.T) {
	to := func(destinations ...string) (mounts []specs.Mount) {
		for _, d := range destinations {
			mounts = append(mounts, specs.Mount{Destination: d})
		}
		return mounts
	}
	got, err := OrderMounts(to("/data/cache", "/data-2", "/data", "/data/cache/x", "/"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(to("/", "/data", "/data-2", "/data/cache", "/data/cache/x"), got); diff != "" {
		t.Error(diff)
	}
	if _, err := OrderMounts(to("/data", "/x", "/data")); err == nil || !strings.Contains(err.Error(), "/data") {
		t.Errorf("two mounts of one destination: %v", err)
	}
}
