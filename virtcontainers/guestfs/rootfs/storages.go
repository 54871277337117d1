package rootfs

import (
	"path"
	"strings"

	"github.com/katabox/katabox/agent/api"
)

// Storages returns what the guest mounts for the plan, in this order, and root,
// the path of the resulting root file system in the guest. target returns a new
// path in the guest for each mount; place returns where the disk of a file is
// attached (disk.Pool), which must be done before. After unmounting in reverse
// order the disks are unused.
func (p *Plan) Storages(target func() string, place func(path string, readOnly bool) (driver, source string)) (storages []*api.Storage, root string) {
	at := make([]string, 0, len(p.Disks))
	for _, d := range p.Disks {
		s := &api.Storage{Fstype: d.Fstype, Options: d.Options, Target: target()}
		s.Driver, s.Source = place(d.Path, d.ReadOnly)
		for _, device := range d.Devices {
			_, source := place(device, true)
			s.Devices = append(s.Devices, source)
		}
		storages, at = append(storages, s), append(at, s.Target)
	}
	root = at[len(at)-1]
	if p.Overlay != nil {
		more := p.Overlay.storages(at, target)
		storages = append(storages, more...)
		root = more[len(more)-1].GetTarget()
	}
	return storages, path.Join(root, p.Subdir)
}

// storages returns the overlay's mount over the disks, which are mounted at at.
func (o *Overlay) storages(at []string, target func() string) (storages []*api.Storage) {
	var lower []string
	for _, i := range o.Lower {
		lower = append(lower, at[i])
	}
	if len(lower) == 0 {
		empty := &api.Storage{Driver: "tmpfs", Target: target(), Options: []string{"ro", "size=4k", "mode=0755"}}
		storages, lower = append(storages, empty), []string{empty.GetTarget()}
	}
	options := []string{"lowerdir=" + strings.Join(lower, ":")}
	if o.Upper >= 0 {
		options = append(options, "upperdir="+path.Join(at[o.Upper], o.UpperDir), "workdir="+path.Join(at[o.Upper], o.WorkDir))
	}
	return append(storages, &api.Storage{Driver: "overlay", Target: target(), Options: append(options, o.Options...)})
}
