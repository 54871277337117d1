package rootfs

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// A mark stands for a mount point, which Parse does not know; no path begins
// with markByte.
const markByte = "\x00"

func mark(i int) string { return markByte + strconv.Itoa(i) }

// readMark reads a path that begins with a mark: the number of the mount, and
// the clean path in it, empty for all of it.
func readMark(text string) (i int, in string, ok bool) {
	rest, ok := strings.CutPrefix(text, markByte)
	if !ok {
		return 0, "", false
	}
	number, in, below := strings.Cut(rest, "/")
	i, err := strconv.Atoi(number)
	if err != nil || below && !isPathIn(in) {
		return 0, "", false
	}
	return i, in, true
}

// isPathIn reports whether a path is clean and leads into a directory, and can be
// an option of an overlay.
func isPathIn(p string) bool {
	return p != "" && p != "." && path.Clean("/"+p) == "/"+p && !strings.ContainsAny(p, `:,\`+markByte)
}

// combine makes the plan of a template over disks, or returns nil if the host
// has to mount it.
func combine(disks []Disk, f filled) *Plan {
	switch f.fstype {
	case "overlay":
		o := overlayOf(disks, f)
		if o == nil {
			return nil
		}
		return &Plan{Disks: disks, Overlay: o}
	case "bind":
		return bindOf(disks, f)
	}
	return nil
}

// overlayOf reads an overlay. It returns nil if one of its directories is not
// on one of the disks, or is to be made in a way that the guest would not.
func overlayOf(disks []Disk, f filled) *Overlay {
	o := &overlayReader{Overlay: Overlay{Upper: -1}, work: -1}
	for _, option := range f.options {
		if !o.take(option) {
			return nil
		}
	}
	switch {
	case len(o.Lower) == 0 || !o.hasBothDirs():
		return nil
	case o.Upper >= 0 && (disks[o.Upper].ReadOnly || o.readOnly):
		return nil
	case slices.ContainsFunc(f.dirs, func(d dir) bool { return !o.makes(d) }):
		return nil
	}
	return &o.Overlay
}

// overlayReader is an overlay while its options are read.
type overlayReader struct {
	Overlay
	work     int // the disk with WorkDir, or -1
	readOnly bool
}

// take reads one option. It returns false for a path that is not on the disks.
func (o *overlayReader) take(option string) (ok bool) {
	key, value, _ := strings.Cut(option, "=")
	switch {
	case key == "lowerdir":
		o.Lower, ok = lowerOf(value)
		return ok
	case key == "upperdir":
		o.Upper, o.UpperDir, ok = readMark(value)
		return ok
	case key == "workdir":
		o.work, o.WorkDir, ok = readMark(value)
		return ok
	case hostOnly(option) || strings.Contains(option, markByte):
		return false
	case option == "ro":
		o.readOnly = true
	}
	if option != "rw" && !ofHost(option) {
		o.Options = append(o.Options, option)
	}
	return true
}

// hasBothDirs reports whether there are an upper and a work directory, not the
// root of a disk, on the same disk; or none.
func (o *overlayReader) hasBothDirs() bool {
	has := o.Upper >= 0
	return o.work == o.Upper && (o.UpperDir != "") == has && (o.WorkDir != "") == has
}

// lowerOf reads an overlay's lowerdir: the mounts, whole, topmost first.
func lowerOf(value string) (places []int, ok bool) {
	for text := range strings.SplitSeq(value, ":") {
		i, in, ok := readMark(text)
		if !ok || in != "" {
			return nil, false
		}
		places = append(places, i)
	}
	return places, true
}

// madeMode is the mode of the directories that the guest makes for an overlay.
const madeMode = 0o755

// makes reports whether the guest makes the directory d for the overlay as
// requested.
func (o *Overlay) makes(d dir) bool {
	i, in, ok := readMark(d.path)
	return ok && i == o.Upper && (in == o.UpperDir || in == o.WorkDir) && d.mode == madeMode && d.uid < 1 && d.gid < 1
}

// bindOf reads a bind mount of a disk or of a directory on it.
func bindOf(disks []Disk, f filled) *Plan {
	i, in, ok := readMark(f.source)
	if !ok {
		return nil
	}
	d, bind := disks[i], false
	for _, option := range f.options {
		switch {
		case option == "bind" || option == "rbind":
			bind = true
		case option == "ro" && !d.ReadOnly:
			d.ReadOnly, d.Options = true, append(slices.Clone(d.Options), "ro")
		case option != "ro" && option != "rw" && !ofHost(option):
			return nil
		}
	}
	plan := &Plan{Disks: []Disk{d}, Subdir: in}
	if !bind || len(f.dirs) > 0 && !plan.makeSubdir(i, f.dirs) {
		return nil
	}
	return plan
}

// makeSubdir has the guest make the directory that is bound, as the upper
// directory of an overlay without lower layers. Data is written to the same
// files as with a bind mount. A read-only directory must exist.
func (p *Plan) makeSubdir(mount int, dirs []dir) bool {
	if p.Disks[0].ReadOnly {
		return true
	}
	d := dirs[0]
	i, in, ok := readMark(d.path)
	if !ok || len(dirs) > 1 || i != mount || in != p.Subdir || d.mode != madeMode || d.uid > 0 || d.gid > 0 {
		return false
	}
	p.Overlay = &Overlay{Upper: 0, UpperDir: in, WorkDir: in + ".work"}
	p.Subdir = ""
	return true
}
