package manager

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// configFile writes a configuration with or without disks as root file systems.
func configFile(t *testing.T, disks bool) string {
	t.Helper()
	text := "[hypervisor.qemu]\nenable_annotations = [\"disable_block_device_use\", \"shared_fs\"]\ndisable_block_device_use = true\n"
	if disks {
		text = strings.Replace(text, "= true", "= false", 1)
	}
	path := filepath.Join(t.TempDir(), "configuration.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMountCapabilities(t *testing.T) {
	const annotation = "io.katacontainers.config.hypervisor.disable_block_device_use"
	all := &types.MountCapabilities{Types: []string{"erofs"}, Transforms: []string{"format", "mkdir"}}
	none := new(types.MountCapabilities)
	with, without := configFile(t, true), configFile(t, false)
	host := newHost(t)
	newParams(t, host.RunDir, "pod", map[string]string{"io.kubernetes.cri.container-type": "sandbox", annotation: "false"})
	for _, test := range []struct {
		name, file, env string
		annotations     map[string]string
		want            *types.MountCapabilities
	}{
		{"by the engine's file", with, without, nil, all},
		{"not by the engine's file", without, with, nil, none},
		{"by the environment's", "", with, nil, all},
		{"not by the environment's", "", without, nil, none},
		{"by annotation", without, "", map[string]string{annotation: "false"}, all},
		{"not by annotation", with, "", map[string]string{annotation: "true"}, none},
		{"without a share", without, "", map[string]string{"io.katacontainers.config.hypervisor.shared_fs": "none"}, all},
		{"by the pod's annotation", without, "", serviceOf("pod"), all},
		{"of no pod", with, "", serviceOf("none"), all},
		{"wrong annotation", with, "", map[string]string{annotation: "maybe"}, none},
		{"no such file", "/none", "", nil, none},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KATA_CONF_FILE", test.env)
			id := strings.ReplaceAll(test.name, "'", "")
			p := newParams(t, host.RunDir, strings.ReplaceAll(id, " ", "-"), test.annotations)
			boot := &bootapi.BootstrapParams{InstanceID: p.ID}
			if err := boot.AddExtension(&runtimeoptions.Options{ConfigPath: test.file}); err != nil {
				t.Fatal(err)
			}
			if err := p.ReadStdin(bytes.NewReader(encode(t, boot))); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, mountCapabilities(p), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestInfoAllowsMounts(t *testing.T) {
	for want, file := range map[string]string{"erofs,format/*,mkdir/*": configFile(t, true), "": configFile(t, false)} {
		t.Setenv("KATA_CONF_FILE", file)
		var out bytes.Buffer
		if err := Info("1", &out); err != nil {
			t.Fatal(err)
		}
		var info types.RuntimeInfo
		if err := proto.Unmarshal(out.Bytes(), &info); err != nil {
			t.Fatal(err)
		}
		if got := info.GetAnnotations()[allowMounts]; got != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
}
