package modules

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testSet returns a kernel with a few modules.
func testSet(t *testing.T) *Set {
	t.Helper()
	var mods []*Module
	for _, info := range []Info{
		{Name: "virtio"},
		{Name: "virtio_ring", Depends: []string{"virtio"}},
		{Name: "virtio_pci", Depends: []string{"virtio_ring", "virtio"}},
		{Name: "virtio_blk", Depends: []string{"virtio", "virtio_ring"}},
		{Name: "libcrc32c", SoftPre: []string{"crc32c", "nowhere"}},
		{Name: "crc32c_intel", Aliases: []string{"crc32c"}},
		{Name: "crc32c_other", Aliases: []string{"crc32c"}},
		{Name: "erofs", Depends: []string{"libcrc32c", "ext4"}},
		{Name: "soft_circle", SoftPre: []string{"soft-back"}},
		{Name: "soft_back", Depends: []string{"soft_circle"}},
		{Name: "circle", Depends: []string{"back"}},
		{Name: "back", Depends: []string{"circle"}},
		{Name: "orphan", Depends: []string{"missing"}},
		{Name: "soft_orphan", SoftPre: []string{"orphan"}},
	} {
		mods = append(mods, &Module{Info: info, Path: info.Name + ".ko"})
	}
	set, err := NewSet(mods, []byte("kernel/fs/ext4/ext4.ko\nkernel/crypto/crc32c-generic.ko\n"))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func names(mods []*Module) string {
	var out []string
	for _, m := range mods {
		out = append(out, m.Name)
	}
	return strings.Join(out, " ")
}

func TestLoadOrder(t *testing.T) {
	for _, tc := range []struct {
		name   string
		want   string
		wanted []string
		loaded []string
	}{
		{"dependencies first, once", "virtio virtio_ring virtio_pci", []string{"virtio_pci"}, nil},
		{"two that share some", "virtio virtio_ring virtio_pci virtio_blk", []string{"virtio_pci", "virtio_blk"}, nil},
		{"what is loaded is left out", "virtio_blk", []string{"virtio_blk", "virtio_pci"}, []string{"virtio_pci"}},
		{"built in", "", []string{"ext4", "crc32c_generic"}, nil},
		{"a dash in a name", "virtio virtio_ring virtio_blk", []string{"virtio-blk"}, nil},
		{"soft ones by alias, all that there are", "crc32c_intel crc32c_other libcrc32c erofs", []string{"erofs"}, nil},
		{"a soft circle is cut", "soft_circle", []string{"soft_circle"}, nil},
		{"a soft one that lacks something is left out", "soft_orphan", []string{"soft_orphan"}, nil},
		{"nothing", "", nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set := testSet(t)
			loaded, err := set.LoadOrder(tc.loaded, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := set.LoadOrder(tc.wanted, loaded)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, names(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoadOrderErrors(t *testing.T) {
	for _, tc := range []struct{ module, want string }{
		{"nine_p", "no module nine_p"},
		{"orphan", "dependency of orphan: the kernel package has no module missing"},
		{"circle", "depends on itself"},
	} {
		t.Run(tc.module, func(t *testing.T) {
			_, err := testSet(t).LoadOrder([]string{tc.module}, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestTwoModulesOfOneName(t *testing.T) {
	mods := []*Module{{Info: Info{Name: "x"}, Path: "a/x.ko"}, {Info: Info{Name: "x"}, Path: "b/x.ko"}}
	if _, err := NewSet(mods, nil); err == nil {
		t.Error("no error for two modules of one name")
	}
}
