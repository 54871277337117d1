package rootfs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestfs/rootfs"
)

func m(fstype, source string, options ...string) *types.Mount {
	return &types.Mount{Type: fstype, Source: source, Options: options}
}

// What containerd's erofs snapshotter passes (plugins/snapshots/erofs), without
// what its mount manager does first.
var (
	rw     = m("ext4", "/s/9/rwlayer.img", "rw", "loop")
	layer1 = m("erofs", "/s/1/layer.erofs", "ro", "loop")
	layer2 = m("erofs", "/s/2/layer.erofs", "ro", "loop")
	meta   = m("erofs", "/s/2/fsmeta.erofs", "ro", "loop", "device=/s/1/layer.erofs", "device=/s/2/layer.erofs")
	block  = []string{
		"X-containerd.mkdir.path={{ mount 0 }}/upper:0755", "X-containerd.mkdir.path={{ mount 0 }}/work:0755",
		"workdir={{ mount 0 }}/work", "upperdir={{ mount 0 }}/upper",
	}
)

func overlay(options ...string) *types.Mount { return m("format/mkdir/overlay", "overlay", options...) }

func with(options []string, more ...string) []string {
	return append(append([]string{}, options...), more...)
}

// The same as disks.
var (
	rwDisk    = rootfs.Disk{Path: "/s/9/rwlayer.img", Fstype: "ext4"}
	disk1     = rootfs.Disk{Path: "/s/1/layer.erofs", Fstype: "erofs", ReadOnly: true, Options: []string{"ro"}}
	disk2     = rootfs.Disk{Path: "/s/2/layer.erofs", Fstype: "erofs", ReadOnly: true, Options: []string{"ro"}}
	metaDisk  = rootfs.Disk{Path: "/s/2/fsmeta.erofs", Fstype: "erofs", ReadOnly: true, Options: []string{"ro"}, Devices: []string{"/s/1/layer.erofs", "/s/2/layer.erofs"}}
	rwUpper   = rootfs.Overlay{Lower: []int{1, 2}, Upper: 0, UpperDir: "upper", WorkDir: "work"}
	threeDisk = []rootfs.Disk{rwDisk, disk2, disk1}
)

func TestPlans(t *testing.T) {
	one := func(d rootfs.Disk) *rootfs.Plan { return &rootfs.Plan{Disks: []rootfs.Disk{d}} }
	options := rwUpper
	options.Options = []string{"index=off", "volatile"}
	for _, test := range []struct {
		name   string
		mounts []*types.Mount
		want   *rootfs.Plan
	}{
		{"blockfile", []*types.Mount{m("ext4", "/b/7", "loop", "rw")}, one(rootfs.Disk{Path: "/b/7", Fstype: "ext4"})},
		{"its view", []*types.Mount{m("ext4", "/b/7", "loop", "ro")}, one(rootfs.Disk{Path: "/b/7", Fstype: "ext4", ReadOnly: true, Options: []string{"ro"}})},
		{"the last word counts", []*types.Mount{m("ext4", "/b/7", "ro", "rw")}, one(rootfs.Disk{Path: "/b/7", Fstype: "ext4"})},
		{"devmapper", []*types.Mount{m("xfs", "/dev/mapper/p-7", "nouuid", "x-a", "X-b.c", "noatime")},
			one(rootfs.Disk{Path: "/dev/mapper/p-7", Fstype: "xfs", Options: []string{"nouuid", "noatime"}})},
		{"erofs view", []*types.Mount{layer1}, one(disk1)},
		{"erofs says rw", []*types.Mount{m("erofs", "/s/1/layer.erofs", "rw")}, one(disk1)},
		{"erofs block mode", []*types.Mount{rw, layer2, layer1, overlay(with(block, "lowerdir={{ overlay 1 2 }}")...)},
			&rootfs.Plan{Disks: threeDisk, Overlay: &rwUpper}},
		{"in the other order", []*types.Mount{rw, layer1, layer2, overlay(with(block, "lowerdir={{ overlay 2 1 }}")...)},
			&rootfs.Plan{Disks: []rootfs.Disk{rwDisk, disk1, disk2}, Overlay: &rootfs.Overlay{Lower: []int{2, 1}, Upper: 0, UpperDir: "upper", WorkDir: "work"}}},
		{"overlay options", []*types.Mount{rw, layer2, layer1, overlay(with(block, "lowerdir={{mount 1}}:{{ mount  2}}", "rw", "index=off", "volatile")...)},
			&rootfs.Plan{Disks: threeDisk, Overlay: &options}},
		{"one lower", []*types.Mount{rw, meta, overlay(with(block, "lowerdir={{ mount 1 }}")...)},
			&rootfs.Plan{Disks: []rootfs.Disk{rwDisk, metaDisk}, Overlay: &rootfs.Overlay{Lower: []int{1}, Upper: 0, UpperDir: "upper", WorkDir: "work"}}},
		{"read-only overlay", []*types.Mount{layer2, layer1, overlay("ro", "lowerdir={{ overlay 0 1 }}")},
			&rootfs.Plan{Disks: []rootfs.Disk{disk2, disk1}, Overlay: &rootfs.Overlay{Lower: []int{0, 1}, Upper: -1, Options: []string{"ro"}}}},
		{"read-only bind", []*types.Mount{meta, m("format/bind", "{{ mount 0 }}", "ro", "rbind")}, one(metaDisk)},
		{"bind of a directory", []*types.Mount{m("ext4", "/b/7"), m("format/bind", "{{ mount 0 }}/a/b", "ro", "bind")},
			&rootfs.Plan{Disks: []rootfs.Disk{{Path: "/b/7", Fstype: "ext4", ReadOnly: true, Options: []string{"ro"}}}, Subdir: "a/b"}},
		{"no parent", []*types.Mount{rw, m("format/mkdir/bind", "{{ mount 0 }}/upper", "X-containerd.mkdir.path={{ mount 0 }}/upper:0755", "rw", "rbind")},
			&rootfs.Plan{Disks: []rootfs.Disk{rwDisk}, Overlay: &rootfs.Overlay{Upper: 0, UpperDir: "upper", WorkDir: "upper.work"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := rootfs.Parse(test.mounts)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Mounts that the host makes.
func TestNoPlan(t *testing.T) {
	at := m("ext4", "/b/7")
	at.Target = "sub"
	for name, mounts := range map[string][]*types.Mount{
		"none":                        nil,
		"overlayfs":                   {m("overlay", "overlay", "lowerdir=/a:/b", "upperdir=/u", "workdir=/w")},
		"native":                      {m("bind", "/d", "rw", "rbind")},
		"a file system of the host's": {m("btrfs", "/dev/sda1", "subvol=x")},
		"no path":                     {m("ext4", "LABEL=x")},
		"a part of a file":            {m("ext4", "/b/7", "loop", "offset=512")},
		"a bind of a file":            {m("ext4", "/b/7", "bind")},
		"mapped":                      {m("ext4", "/b/7", "uidmap=0:1:2")},
		"unknown to us":               {m("ext4", "/b/7", "X-containerd.luks=1")},
		"below the root":              {at},
		"one over another":            {m("ext4", "/b/7"), m("ext4", "/b/8")},
		"a relative device":           {m("erofs", "/s/1", "device=a")},
		"erofs with a host directory": {layer2, layer1, overlay("workdir=/s/9/work", "upperdir=/s/9/fs", "lowerdir={{ overlay 0 1 }}")},
		"a lower directory of it":     {rw, layer1, overlay(with(block, "lowerdir={{ mount 1 }}:/d")...)},
		"a part of a lower":           {rw, layer1, overlay(with(block, "lowerdir={{ mount 1 }}/d")...)},
		"no lower":                    {rw, layer1, overlay(block...)},
		"a disk's root as upper":      {rw, layer1, overlay("upperdir={{ mount 0 }}", "workdir={{ mount 0 }}/w", "lowerdir={{ mount 1 }}")},
		"two disks as upper":          {rw, rw, overlay("upperdir={{ mount 0 }}/u", "workdir={{ mount 1 }}/w", "lowerdir={{ mount 1 }}")},
		"no work directory":           {rw, layer1, overlay("upperdir={{ mount 0 }}/u", "lowerdir={{ mount 1 }}")},
		"a read-only upper":           {layer2, layer1, overlay(with(block, "lowerdir={{ mount 1 }}")...)},
		"upper outside":               {rw, layer1, overlay("upperdir={{ mount 0 }}/../u", "workdir={{ mount 0 }}/w", "lowerdir={{ mount 1 }}")},
		"two upper directories":       {rw, layer1, overlay("upperdir={{ mount 0 }}/u:x", "workdir={{ mount 0 }}/w", "lowerdir={{ mount 1 }}")},
		"to be made otherwise":        {rw, layer1, overlay("X-containerd.mkdir.path={{ mount 0 }}/u:0700", "upperdir={{ mount 0 }}/u", "workdir={{ mount 0 }}/w", "lowerdir={{ mount 1 }}")},
		"for another owner":           {rw, layer1, overlay("X-containerd.mkdir.path={{ mount 0 }}/u:0755:1:1", "upperdir={{ mount 0 }}/u", "workdir={{ mount 0 }}/w", "lowerdir={{ mount 1 }}")},
		"another directory":           {rw, layer1, overlay(with(block, "X-containerd.mkdir.path={{ mount 0 }}/x:0755", "lowerdir={{ mount 1 }}")...)},
		"a mapped overlay":            {rw, layer1, overlay(with(block, "lowerdir={{ mount 1 }}", "uidmap=0:1:2")...)},
		"a mark in another option":    {rw, layer1, overlay(with(block, "lowerdir={{ mount 1 }}", "datadir={{ mount 0 }}")...)},
		"over a directory":            {m("bind", "/d", "rbind"), m("format/bind", "{{ mount 0 }}", "rbind")},
		"bind of the host's":          {layer1, m("format/bind", "/d", "rbind")},
		"mapped bind":                 {layer1, m("format/bind", "{{ mount 0 }}", "rbind", "uidmap=0:1:2")},
		"bind, another directory":     {rw, m("format/mkdir/bind", "{{ mount 0 }}/u", "X-containerd.mkdir.path={{ mount 0 }}/x:0755", "rbind")},
		"another template":            {rw, m("format/tmpfs", "tmpfs")},
	} {
		if plan, err := rootfs.Parse(mounts); plan != nil || err != nil {
			t.Errorf("%s: %+v, %v", name, plan, err)
		}
	}
}

// Mounts that cannot be made.
func TestWrongMounts(t *testing.T) {
	for _, test := range []struct {
		mounts []*types.Mount
		is     func(error) bool
		want   string
	}{
		{[]*types.Mount{m("mkfs/ext4", "/s/9/rwlayer.img", "X-containerd.mkfs.size=1")}, errdefs.IsInvalidArgument, `mount 0 of the root file system, type "mkfs/ext4", source "/s/9/rwlayer.img": transform "mkfs"`},
		{[]*types.Mount{layer1, overlay("lowerdir={{ overlay 0 1 }}")}, errdefs.IsInvalidArgument, "names mount 1, and there are 1 before it"},
		{[]*types.Mount{layer1, overlay("lowerdir={{ mount 0 }}:{{ source 0 }}")}, errdefs.IsInvalidArgument, "{{ source 0 }}"},
		{[]*types.Mount{layer1, overlay("lowerdir={{ mount 99999 }}")}, errdefs.IsInvalidArgument, "is not understood"},
		{[]*types.Mount{layer1, overlay("lowerdir={{ mount 0")}, errdefs.IsInvalidArgument, "is not understood"},
		{[]*types.Mount{layer1, m("format/bind", "{{ mount 1 }}")}, errdefs.IsInvalidArgument, "mount 1 of the root"},
		{[]*types.Mount{m("format/bind", "{{ mount 0 }}"), layer1}, errdefs.IsInvalidArgument, "mount 0 of the root"},
		{[]*types.Mount{layer1, overlay("X-containerd.mkdir.path=/a:999")}, errdefs.IsInvalidArgument, `mode is "999"`},
		{[]*types.Mount{layer1, overlay("X-containerd.mkdir.path=/a:4755")}, errdefs.IsInvalidArgument, `mode is "4755"`},
		{[]*types.Mount{layer1, overlay("X-containerd.mkdir.path=/a:0755:1")}, errdefs.IsInvalidArgument, "want a path, mode, uid and gid"},
		{[]*types.Mount{layer1, overlay("X-containerd.mkdir.path=/a:0755:-1:0")}, errdefs.IsInvalidArgument, "owner is"},
		{[]*types.Mount{m("ext4", "/a\x000/b")}, errdefs.IsInvalidArgument, "null byte"},
		{[]*types.Mount{m("erofs", "/s/1/layer.erofs", "ro", "X-containerd.dmverity=/s/1/.dmverity")}, errdefs.IsNotImplemented, "/s/1/layer.erofs wants dm-verity"},
	} {
		plan, err := rootfs.Parse(test.mounts)
		if plan != nil || !test.is(err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %+v, %v, want %q", test.mounts, plan, err, test.want)
		}
	}
}

// storages returns a plan's storages in a guest whose disks are all SCSI.
func storages(p *rootfs.Plan) ([]*api.Storage, string) {
	n := 0
	return p.Storages(func() string {
		n++
		return fmt.Sprintf("/t/%d", n)
	}, func(path string, readOnly bool) (string, string) {
		return "scsi", fmt.Sprintf("%s %v", path, readOnly)
	})
}

func TestStorages(t *testing.T) {
	disk := func(target, fstype, source string, options ...string) *api.Storage {
		return &api.Storage{Driver: "scsi", Source: source, Fstype: fstype, Target: target, Options: options}
	}
	withDevices := disk("/t/1", "erofs", "/s/2/fsmeta.erofs true", "ro")
	withDevices.Devices = []string{"/s/1/layer.erofs true", "/s/2/layer.erofs true"}
	over := func(target string, options ...string) *api.Storage {
		return &api.Storage{Driver: "overlay", Target: target, Options: options}
	}
	for _, test := range []struct {
		name string
		plan rootfs.Plan
		want []*api.Storage
		root string
	}{
		{"one disk", rootfs.Plan{Disks: []rootfs.Disk{rwDisk}}, []*api.Storage{disk("/t/1", "ext4", "/s/9/rwlayer.img false")}, "/t/1"},
		{"a directory", rootfs.Plan{Disks: []rootfs.Disk{disk1}, Subdir: "a/b"}, []*api.Storage{disk("/t/1", "erofs", "/s/1/layer.erofs true", "ro")}, "/t/1/a/b"},
		{"devices", rootfs.Plan{Disks: []rootfs.Disk{metaDisk}}, []*api.Storage{withDevices}, "/t/1"},
		{"overlay", rootfs.Plan{Disks: threeDisk, Overlay: &rwUpper}, []*api.Storage{
			disk("/t/1", "ext4", "/s/9/rwlayer.img false"), disk("/t/2", "erofs", "/s/2/layer.erofs true", "ro"), disk("/t/3", "erofs", "/s/1/layer.erofs true", "ro"),
			over("/t/4", "lowerdir=/t/2:/t/3", "upperdir=/t/1/upper", "workdir=/t/1/work"),
		}, "/t/4"},
		{"read-only", rootfs.Plan{Disks: []rootfs.Disk{disk2, disk1}, Overlay: &rootfs.Overlay{Lower: []int{0, 1}, Upper: -1, Options: []string{"ro"}}}, []*api.Storage{
			disk("/t/1", "erofs", "/s/2/layer.erofs true", "ro"), disk("/t/2", "erofs", "/s/1/layer.erofs true", "ro"), over("/t/3", "lowerdir=/t/1:/t/2", "ro"),
		}, "/t/3"},
		{"over nothing", rootfs.Plan{Disks: []rootfs.Disk{rwDisk}, Overlay: &rootfs.Overlay{Upper: 0, UpperDir: "upper", WorkDir: "upper.work"}}, []*api.Storage{
			disk("/t/1", "ext4", "/s/9/rwlayer.img false"), {Driver: "tmpfs", Target: "/t/2", Options: []string{"ro", "size=4k", "mode=0755"}},
			over("/t/3", "lowerdir=/t/2", "upperdir=/t/1/upper", "workdir=/t/1/upper.work"),
		}, "/t/3"},
	} {
		got, root := storages(&test.plan)
		if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" || root != test.root {
			t.Errorf("%s: root %s, want %s\n%s", test.name, root, test.root, diff)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("ext4", "/s/9/rwlayer.img", "rw,loop", "format/mkdir/overlay", "overlay", strings.Join(with(block, "lowerdir={{ overlay 1 1 }}"), ","))
	f.Add("erofs", "/s/1", "ro,loop,device=/s/2", "format/bind", "{{ mount 0 }}/a", "ro,rbind")
	f.Add("ext4", "/s/1", "rw", "format/mkdir/bind", "{{ mount 1 }}/a", "X-containerd.mkdir.path={{ mount 1 }}/a:0755:0:0,rbind")
	f.Fuzz(func(t *testing.T, type1, source1, options1, type2, source2, options2 string) {
		plan, err := rootfs.Parse([]*types.Mount{
			m(type1, source1, strings.Split(options1, ",")...), m("erofs", "/e"), m(type2, source2, strings.Split(options2, ",")...),
		})
		if err != nil || plan == nil {
			return
		}
		all, root := storages(plan)
		for _, s := range all {
			for _, o := range s.GetOptions() {
				if strings.ContainsAny(o, "\x00") || s.GetDriver() == "scsi" && strings.HasPrefix(o, "X-") {
					t.Errorf("option %q of %v", o, s)
				}
			}
			if s.GetDriver() == "scsi" && !strings.HasPrefix(s.GetSource(), "/") {
				t.Errorf("source of %v", s)
			}
		}
		if !strings.HasPrefix(root, "/t/") {
			t.Errorf("the root is %q", root)
		}
	})
}
