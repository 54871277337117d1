package guestfs

import (
	"slices"
	"testing"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume"
)

// groupsOf plugs the volumes into a new container, and returns the groups to which the
// guest is to give their files, 0 for none.
func groupsOf(t *testing.T, p *Pod, created bool, volumes ...volume.Volume) []uint32 {
	t.Helper()
	c := p.Container(request(t))
	for _, v := range volumes {
		if _, err := c.plugVolume(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	if created {
		c.Created()
	}
	var groups []uint32
	for _, s := range c.storages {
		groups = append(groups, s.GetFsGroup().GetGid())
	}
	if err := c.Release(t.Context()); err != nil {
		t.Error(err)
	}
	return groups
}

// The files of a volume are given to its group once, so that what a container then makes
// private stays so. A container that the guest did not create does not count.
func TestGroupIsGivenOnce(t *testing.T) {
	p, _, _, _ := volumePod(t)
	direct := func(key string, group uint32) volume.Volume {
		return volume.Volume{
			Kind: volume.Direct, Key: key, Assigned: key,
			Disk: volume.Disk{Path: file(t, "volume"), Fstype: "ext4", Group: &api.FSGroup{Gid: group}},
		}
	}
	one, other := direct("/one", 123), direct("/other", 456)
	reader, regrouped, replaced := other, one, direct("/one", 123)
	reader.Disk.ReadOnly = true
	regrouped.Disk.Group = &api.FSGroup{Gid: 124}
	for _, step := range []struct {
		name    string
		created bool
		volumes []volume.Volume
		want    []uint32
	}{
		{"refused by the guest", false, []volume.Volume{one}, []uint32{123}},
		{"first, with two mounts of it", true, []volume.Volume{one, one}, []uint32{123, 0}},
		{"second, with another volume to read", true, []volume.Volume{one, reader}, []uint32{0, 0}},
		{"third, which writes that one", true, []volume.Volume{one, other}, []uint32{0, 456}},
		{"fourth", true, []volume.Volume{other, one}, []uint32{0, 0}},
		{"another disk for the volume", true, []volume.Volume{replaced}, []uint32{123}},
		{"another group", true, []volume.Volume{regrouped}, []uint32{124}},
	} {
		if got := groupsOf(t, p, step.created, step.volumes...); !slices.Equal(got, step.want) {
			t.Errorf("%s: groups %v, want %v", step.name, got, step.want)
		}
	}
}
