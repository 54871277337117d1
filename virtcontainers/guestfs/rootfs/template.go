package rootfs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
)

// The keywords of containerd's templates (core/mount/manager, transformer.go).
const (
	format      = "format"
	mkdir       = "mkdir"
	engineWords = "X-containerd."
	mkdirPath   = engineWords + "mkdir.path="
	dmverity    = engineWords + "dmverity="
)

// filled is a mount whose template was filled in.
type filled struct {
	fstype, source string
	options        []string
	// dirs are to be made before it is mounted.
	dirs []dir
}

// dir is a directory to make; the ids are -1 if the mount names none.
type dir struct {
	path     string
	mode     uint32
	uid, gid int
}

// isTemplate reports whether the mount must be filled in before mount(2).
func isTemplate(m *types.Mount) bool { return strings.Contains(m.GetType(), "/") }

// fill fills in the template of mounts[i]. at returns the mount point of an
// earlier mount.
func fill(mounts []*types.Mount, i int, at func(int) string) (filled, error) {
	m := mounts[i]
	f := filled{source: m.GetSource(), options: slices.Clone(m.GetOptions())}
	words := strings.Split(m.GetType(), "/")
	f.fstype = words[len(words)-1]
	for _, word := range words[:len(words)-1] {
		var err error
		switch word {
		case format:
			err = f.format(i, at)
		case mkdir:
			err = f.takeDirs()
		default:
			err = fmt.Errorf("transform %q is not understood: %w", word, errdefs.ErrInvalidArgument)
		}
		if err != nil {
			return filled{}, fmt.Errorf("mount %d of the root file system, type %.100q, source %.200q: %w", i, m.GetType(), m.GetSource(), err)
		}
	}
	return f, nil
}

// format fills in source and options of a mount that follows n others.
func (f *filled) format(n int, at func(int) string) (err error) {
	if f.source, err = formatText(f.source, n, at); err != nil {
		return err
	}
	for i := range f.options {
		if f.options[i], err = formatText(f.options[i], n, at); err != nil {
			return err
		}
	}
	return nil
}

// placeholder matches what stands in a template for the mount points of other
// mounts: of one, or of a range, as for overlay's lowerdir.
var placeholder = regexp.MustCompile(`\{\{\s*(?:(mount)\s+([0-9]{1,4})|(overlay)\s+([0-9]{1,4})\s+([0-9]{1,4}))\s*\}\}`)

func formatText(text string, n int, at func(int) string) (string, error) {
	var out strings.Builder
	rest := text
	for {
		m := placeholder.FindStringSubmatchIndex(rest)
		if m == nil {
			break
		}
		word := placeholder.FindStringSubmatch(rest)
		places := []string{word[2]}
		if word[3] != "" {
			places = word[4:6]
		}
		from, _ := strconv.Atoi(places[0]) // The pattern allows only digits, few enough for an int.
		to, _ := strconv.Atoi(places[len(places)-1])
		if max(from, to) >= n {
			return "", fmt.Errorf("%.200q names mount %d, and there are %d before it: %w", text, max(from, to), n, errdefs.ErrInvalidArgument)
		}
		out.WriteString(rest[:m[0]] + strings.Join(each(from, to, at), ":"))
		rest = rest[m[1]:]
	}
	if strings.Contains(rest, "{{") || strings.Contains(out.String(), "{{") {
		return "", fmt.Errorf("template %.200q is not understood, want {{ mount N }} or {{ overlay N M }}: %w", text, errdefs.ErrInvalidArgument)
	}
	return out.String() + rest, nil
}

// each returns the mount points of a range of mounts, in either order.
func each(from, to int, at func(int) string) []string {
	step := 1
	if from > to {
		step = -1
	}
	places := []string{at(from)}
	for from != to {
		from += step
		places = append(places, at(from))
	}
	return places
}

// takeDirs moves the directories to make from the options to dirs.
func (f *filled) takeDirs() error {
	var rest []string
	for _, o := range f.options {
		value, ok := strings.CutPrefix(o, mkdirPath)
		if !ok {
			rest = append(rest, o)
			continue
		}
		d, err := parseDir(value)
		if err != nil {
			return fmt.Errorf("option %.200q: %w", o, err)
		}
		f.dirs = append(f.dirs, d)
	}
	f.options = rest
	return nil
}

// parseDir reads PATH[:MODE[:UID:GID]]; without a mode it is 0700 (mkdir.go).
func parseDir(value string) (dir, error) {
	parts := strings.Split(value, ":")
	d := dir{path: parts[0], mode: 0o700, uid: -1, gid: -1}
	if n := len(parts); n != 1 && n != 2 && n != 4 {
		return d, fmt.Errorf("want a path, mode, uid and gid: %w", errdefs.ErrInvalidArgument)
	}
	if len(parts) > 1 {
		mode, err := strconv.ParseUint(parts[1], 8, 32)
		if err != nil || mode > 0o777 {
			return d, fmt.Errorf("mode is %q, want permission bits: %w", parts[1], errdefs.ErrInvalidArgument)
		}
		d.mode = uint32(mode)
	}
	if len(parts) == 4 {
		uid, uidErr := strconv.ParseUint(parts[2], 10, 31)
		gid, gidErr := strconv.ParseUint(parts[3], 10, 31)
		if uidErr != nil || gidErr != nil {
			return d, fmt.Errorf("owner is %q: %w", parts[2:], errdefs.ErrInvalidArgument)
		}
		d.uid, d.gid = int(uid), int(gid)
	}
	return d, nil
}
