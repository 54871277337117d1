package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/guestfs/volume/direct"
)

const mountInfo = `{"volume-type": "block", "device": "/dev/sdf", "fstype": "ext4", "options": ["ro", "noatime"]}`

func TestDirectVolume(t *testing.T) {
	f := newFakeHost(t)
	f.volumes = direct.Dir(filepath.Join(t.TempDir(), "volumes"))
	const path = "/var/lib/kubelet/pods/uid/volumes/kubernetes.io~csi/pv/mount"
	if out, errs, code := call(t, f.host, "direct-volume", "add", "--volume-path", path, "--mount-info", mountInfo); code != 0 || out+errs != "" {
		t.Errorf("add: %d, %q %q", code, out, errs)
	}
	if info, err := f.volumes.Lookup(path); err != nil || info.Device != "/dev/sdf" {
		t.Errorf("after add: %+v, %v", info, err)
	}
	for range 2 {
		if out, errs, code := call(t, f.host, "direct-volume", "remove", "--volume-path", path); code != 0 || out+errs != "" {
			t.Errorf("remove: %d, %q %q", code, out, errs)
		}
	}
	if _, err := f.volumes.Lookup(path); !errdefs.IsNotFound(err) {
		t.Errorf("after remove: %v", err)
	}
}

func TestDirectVolumeUsage(t *testing.T) {
	f := newFakeHost(t)
	f.volumes = direct.Dir(t.TempDir())
	tests := []struct{ args, want string }{
		{"add --volume-path /v", `"mount-info" not set`},
		{"add --mount-info {}", `"volume-path" not set`},
		{"add --volume-path /v --mount-info {}", `add direct volume /v: device is ""`},
		{"add --volume-path v --mount-info " + strings.ReplaceAll(mountInfo, " ", ""), `volume path "v" is not absolute`},
		{"remove --volume-path /v more", `unexpected argument "more"`},
		{"remove --size 1", "see kata-runtime direct-volume remove --help"},
		{"stats", `"volume-path" not set`},
		{"stats --volume-path /v", "volume /v: no running container has it mounted"},
		{"resize --volume-path /v --size -1", "see kata-runtime direct-volume resize --help"},
		{"resize --volume-path /v --size 1", "volume /v: no running container has it mounted"},
		{"expand", `unknown command "expand": want direct-volume add, remove, stats or resize`},
	}
	for _, test := range tests {
		_, errs, code := call(t, f.host, append([]string{"direct-volume"}, strings.Fields(test.args)...)...)
		if code != 1 || !strings.Contains(errs, test.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %d, %q, want one line with %q", test.args, code, errs, test.want)
		}
	}
	for _, args := range [][]string{{"direct-volume"}, {"direct-volume", "add", "--help"}} {
		if out, errs, code := call(t, f.host, args...); code != 0 || !strings.Contains(out, "direct-volume") {
			t.Errorf("%v: %d, %q %q", args, code, out, errs)
		}
	}
}

func TestDirectVolumeOfPod(t *testing.T) {
	h := withRecords(t, true) // another pod does not answer
	out, errs, code := call(t, h, "direct-volume", "stats", "--volume-path", "/v")
	if want := `{"usage":[{"available":0,"total":7,"used":0,"unit":1},`; code != 0 || errs != "" || !strings.HasPrefix(out, want) {
		t.Errorf("stats: %d, %q %q", code, out, errs)
	}
	if out, errs, code := call(t, h, "direct-volume", "resize", "--volume-path", "/v", "--size", "4096"); code != 0 || out+errs != "/v: 4096 bytes\n" {
		t.Errorf("resize: %d, %q %q", code, out, errs)
	}
	if out, _, code := call(t, h, "direct-volume", "resize", "--volume-path", "/v", "--size", "4096", "--json"); code != 0 || out != "{\n  \"bytes\": 4096,\n  \"path\": \"/v\"\n}\n" {
		t.Errorf("resize --json: %d, %q", code, out)
	}
	for _, verb := range []string{"stats", "resize"} {
		if _, errs, code := call(t, h, "direct-volume", verb, "--volume-path", "/other"); code != 1 || !strings.Contains(errs, "pod p2: ") {
			t.Errorf("%s: %d, %q, want the pod that did not answer", verb, code, errs)
		}
	}
}
