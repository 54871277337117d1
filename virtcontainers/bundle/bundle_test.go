package bundle

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestPlace(t *testing.T) {
	const cri, crio, docker = "io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType", "io.kubernetes.docker.type"
	tests := []struct {
		name        string
		annotations map[string]string
		want        Membership
		err         string
	}{
		{name: "none", want: Membership{Single, "c1"}},
		{name: "CRI sandbox", annotations: map[string]string{cri: "sandbox"}, want: Membership{Sandbox, "c1"}},
		{name: "CRI container", annotations: map[string]string{cri: "container", "io.kubernetes.cri.sandbox-id": "s1"},
			want: Membership{Service, "s1"}},
		{name: "CRI-O container", annotations: map[string]string{crio: "container", "io.kubernetes.cri-o.SandboxID": "s1"},
			want: Membership{Service, "s1"}},
		{name: "iSulad sandbox", annotations: map[string]string{docker: "podsandbox"}, want: Membership{Sandbox, "c1"}},
		{name: "iSulad container", annotations: map[string]string{docker: "container", "io.kubernetes.sandbox.id": "s1"},
			want: Membership{Service, "s1"}},
		{name: "unknown kind", annotations: map[string]string{cri: "vm"}, err: `container-type has the value "vm", want container or sandbox`},
		{name: "no sandbox named", annotations: map[string]string{cri: "container"}, err: "names no sandbox"},
		{name: "bad sandbox id", annotations: map[string]string{cri: "container", "io.kubernetes.cri.sandbox-id": "../s1"},
			err: "annotation io.kubernetes.cri.sandbox-id"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Place("c1", tt.annotations)
			checkError(t, err, tt.err)
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestCheckID(t *testing.T) {
	for _, id := range []string{"a", "0f3c", "web-1_a.b", strings.Repeat("f", 64)} {
		if err := CheckID(id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", ".", "..", "a/b", "/a", "-a", "a\x00", "a b", strings.Repeat("f", 129)} {
		if err := CheckID(id); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("CheckID(%q) = %v", id, err)
		}
	}
}

func TestLoad(t *testing.T) {
	good := `{"root":{"path":"rootfs"},"process":{"args":["true"],"cwd":"/"},"linux":{}}`
	tests := []struct{ name, json, err string }{
		{"good", good, ""},
		{"not JSON", `{`, "not an OCI runtime spec"},
		{"no root", `{"process":{"args":["true"]},"linux":{}}`, "root.path is missing"},
		{"no process", `{"root":{"path":"rootfs"},"linux":{}}`, "process is missing"},
		{"no args", `{"root":{"path":"rootfs"},"process":{"args":[]},"linux":{}}`, "process.args is missing"},
		{"not Linux", `{"root":{"path":"rootfs"},"process":{"args":["true"]}}`, "linux is missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, SpecFile), []byte(tt.json), 0o600); err != nil {
				t.Fatal(err)
			}
			b, err := Load(dir)
			checkError(t, err, tt.err)
			if err == nil && b.RootfsPath() != filepath.Join(dir, "rootfs") {
				t.Errorf("rootfs is %s", b.RootfsPath())
			}
		})
	}
	if _, err := Load(t.TempDir()); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("a bundle without config.json: %v", err)
	}
}

// Sources of bind mounts are relative to the bundle, whatever the shim's working
// directory is: that of the pod's first container.
func TestRelativeSources(t *testing.T) {
	dir := t.TempDir()
	spec := `{"root":{"path":"rootfs"},"process":{"args":["true"]},"linux":{},"mounts":[
		{"destination":"/a","type":"bind","source":"volumes/a"}, {"destination":"/b","source":"../b","options":["rbind"]},
		{"destination":"/c","type":"uds","source":"c.sock"}, {"destination":"/d","type":"bind","source":"/d"},
		{"destination":"/e","type":"bind"}, {"destination":"/proc","type":"proc","source":"proc"}]}`
	if err := os.WriteFile(filepath.Join(dir, SpecFile), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range b.Spec.Mounts {
		got = append(got, m.Source)
	}
	want := []string{dir + "/volumes/a", filepath.Dir(dir) + "/b", dir + "/c.sock", "/d", "", "proc"}
	if !slices.Equal(got, want) {
		t.Errorf("sources %q, want %q", got, want)
	}
}

// The paths of devices need not be clean: Kubernetes passes devicePath on as it is.
func TestDevicePaths(t *testing.T) {
	dir := t.TempDir()
	spec := `{"root":{"path":"rootfs"},"process":{"args":["true"]},"linux":{"devices":[
		{"path":"dev/fuse","type":"c","major":10,"minor":229}, {"path":"/dev/../dev//fuse/","type":"c","major":1,"minor":5},
		{"path":"/dev//xvda/","type":"b","major":8,"minor":0}, {"path":"pipe","type":"p"}]}}`
	if err := os.WriteFile(filepath.Join(dir, SpecFile), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range b.Spec.Linux.Devices {
		got = append(got, d.Path)
	}
	if want := []string{"/dev/fuse", "/dev/fuse", "/dev/xvda", "/pipe"}; !slices.Equal(got, want) {
		t.Errorf("paths %q, want %q", got, want)
	}
	chars, err := CharDevices(b.Spec)
	if err != nil || len(chars) != 1 || chars[0].Path != "/dev/fuse" || chars[0].Name != "fuse" {
		t.Errorf("got %+v, %v; want the first of the two", chars, err)
	}
}

// checkError fails the test unless err is an ErrInvalidArgument that holds
// want, or nil where want is empty.
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
		t.Fatalf("error %v, want an invalid argument: %s", err, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"root":{"path":"rootfs"},"process":{"args":["true"]},"linux":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := Parse(data)
		if err != nil {
			return
		}
		if len(spec.Process.Args) == 0 || spec.Root.Path == "" || spec.Linux == nil {
			t.Error("an incomplete spec was accepted")
		}
		_, _ = Place("c1", spec.Annotations)
	})
}
