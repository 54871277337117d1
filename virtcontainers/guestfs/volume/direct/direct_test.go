package direct

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
)

const example = `{"volume-type": "directvol", "device": "/dev/sdf", "fstype": "ext4",
	"metadata": {"fsGroup": "123", "fsGroupChangePolicy": "OnRootMismatch", "other": "x"}, "options": ["ro", "noatime,nodiratime"]}`

func TestParse(t *testing.T) {
	tests := []struct {
		name, text string
		want       *Info
		err        string
	}{
		{name: "all", text: example, want: &Info{
			Device: "/dev/sdf", Fstype: "ext4", Options: []string{"noatime", "nodiratime"}, ReadOnly: true,
			Group: &Group{GID: 123, OnRootMismatch: true},
		}},
		{name: "as documented", text: `{"Device": "/dev/sdf", "fstype": "ext4"}`, want: &Info{Device: "/dev/sdf", Fstype: "ext4"}},
		{
			name: "last of ro and rw", text: `{"device": "/d", "fstype": "xfs", "options": ["ro", "rw"], "metadata": {"fsGroup": "7", "fsGroupChangePolicy": "Always"}}`,
			want: &Info{Device: "/d", Fstype: "xfs", Group: &Group{GID: 7}},
		},
		{name: "no JSON", text: `device=/dev/sdf`, err: "mount info"},
		{name: "type", text: `{"volume-type": "spdkvol", "device": "/d", "fstype": "ext4"}`, err: `volume-type is "spdkvol"`},
		{name: "no device", text: `{"fstype": "ext4"}`, err: `device is ""`},
		{name: "relative device", text: `{"device": "sdf", "fstype": "ext4"}`, err: `device is "sdf"`},
		{name: "no file system", text: `{"device": "/d"}`, err: `fstype is ""`},
		{name: "odd file system", text: `{"device": "/d", "fstype": "ext4,x"}`, err: `fstype is "ext4,x"`},
		{name: "encrypted", text: `{"device": "/d", "fstype": "ext4", "metadata": {"encryptionKey": "k"}}`, err: "metadata encryptionKey"},
		{name: "no file system yet", text: `{"device": "/d", "fstype": "ext4", "metadata": {"createFilesystem": "true"}}`, err: "metadata createFilesystem"},
		{name: "confidential", text: `{"device": "/d", "fstype": "ext4", "confidential-storage": {}}`, err: "confidential-storage"},
		{name: "group", text: `{"device": "/d", "fstype": "ext4", "metadata": {"fsGroup": "-1"}}`, err: `metadata fsGroup is "-1"`},
		{name: "policy", text: `{"device": "/d", "fstype": "ext4", "metadata": {"fsGroup": "1", "fsGroupChangePolicy": "x"}}`, err: `metadata fsGroupChangePolicy is "x"`},
		{name: "long options", text: `{"device": "/d", "fstype": "ext4", "options": ["` + strings.Repeat("o", maxOptions+1) + `"]}`, err: "options have"},
		{name: "long", text: strings.Repeat(" ", maxInfo) + example, err: "at most 65536"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Parse([]byte(test.text))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || !errdefs.IsInvalidArgument(err) {
					t.Errorf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestAddLookupRemove(t *testing.T) {
	d := Dir(filepath.Join(t.TempDir(), "run/volumes"))
	const volume = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount"
	if _, err := d.Lookup(volume); !errdefs.IsNotFound(err) {
		t.Errorf("look up what is not there: %v", err)
	}
	for _, info := range []string{`{"device": "/dev/old", "fstype": "xfs"}`, example} {
		if err := d.Add(volume+"/", []byte(info)); err != nil {
			t.Fatal(err)
		}
	}
	info, err := d.Lookup(volume)
	if err != nil || info.Device != "/dev/sdf" {
		t.Errorf("look up: %+v, %v", info, err)
	}
	// The file is where other programs look, and is private.
	dir := filepath.Join(string(d), base64.URLEncoding.EncodeToString([]byte(volume)))
	data, err := os.ReadFile(filepath.Join(dir, "mountInfo.json"))
	if err != nil || string(data) != example {
		t.Errorf("file: %q, %v", data, err)
	}
	for path, want := range map[string]os.FileMode{string(d): 0o700, dir: 0o700, filepath.Join(dir, "mountInfo.json"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
	for range 2 {
		if err := d.Remove(volume); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.Lookup(volume); !errdefs.IsNotFound(err) {
		t.Errorf("look up what was removed: %v", err)
	}
}

func TestRefused(t *testing.T) {
	d := Dir(t.TempDir())
	for path, info := range map[string]string{"relative": example, "/" + strings.Repeat("n", maxPath): example, "/volume": `{}`, "/nul\x00": example} {
		if err := d.Add(path, []byte(info)); !errdefs.IsInvalidArgument(err) {
			t.Errorf("add %.20q: %v", path, err)
		}
	}
	if entries, err := os.ReadDir(string(d)); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if _, err := d.Lookup("/" + strings.Repeat("n", maxPath)); !errdefs.IsNotFound(err) {
		t.Errorf("look up a long path: %v", err)
	}
	if err := d.Add("/"+strings.Repeat("n", maxPath-1), []byte(example)); err != nil {
		t.Errorf("the longest path: %v", err)
	}
}

// An invalid file is an error, not an unassigned volume: otherwise the
// container would get an empty directory.
func TestWrongFile(t *testing.T) {
	d := Dir(t.TempDir())
	if err := d.Add("/volume", []byte(example)); err != nil {
		t.Fatal(err)
	}
	dir, err := d.of("/volume")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", strings.Repeat(" ", maxInfo+1)} {
		if err := os.WriteFile(filepath.Join(dir, infoName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Lookup("/volume"); !errdefs.IsInvalidArgument(err) {
			t.Errorf("look up: %v", err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(`{"device":"/d","fstype":"ext4","options":[",,ro"],"metadata":{"fsGroup":"99999999999"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		info, err := Parse(data)
		if err != nil {
			return
		}
		if !filepath.IsAbs(info.Device) || info.Fstype == "" || strings.Contains(strings.Join(info.Options, ""), ",") {
			t.Errorf("%+v", info)
		}
	})
}
