package container

import (
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/standalone/spec"
	"github.com/katabox/katabox/standalone/store"
)

// What an image declares as volumes is writable in a container whose root is not.
func TestVolumesOfAReadOnlyRoot(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "data/sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "data"), os.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "data/sub/file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	volumes := map[string]struct{}{"/data": {}, "new/": {}, "/mine/db": {}, "/": {}}
	for _, readOnly := range []bool{true, false} {
		c := &Container{dir: t.TempDir(), img: store.Image{Config: v1.ImageConfig{Volumes: volumes}}}
		o := &Options{Spec: spec.Options{ReadOnly: readOnly, Mounts: []specs.Mount{{Destination: "/mine"}, {Destination: "/data/cache"}}}}
		if err := c.addVolumes(root, o); err != nil {
			t.Fatal(err)
		}
		added := map[string]string{}
		last := len(o.Spec.Mounts) - 2 // the user's mounts are over the volumes
		for _, m := range o.Spec.Mounts[:last] {
			added[m.Destination] = m.Source
		}
		if at := o.Spec.Mounts[last+1].Destination; at != "/data/cache" {
			t.Errorf("the last mount is %s", at)
		}
		if !readOnly {
			if len(added) != 0 {
				t.Errorf("mounts %v over a root that is writable", added)
			}
			continue
		}
		if len(added) != 2 || added["/data"] == "" || added["/new"] == "" {
			t.Fatalf("mounts %v, want /data and /new", added)
		}
		if info, err := os.Stat(added["/data"]); err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
			t.Errorf("/data: %v, %v", info, err)
		}
		if data, err := os.ReadFile(filepath.Join(added["/data"], "sub/file")); string(data) != "x" {
			t.Errorf("/data/sub/file: %q, %v", data, err)
		}
	}
}
