package config

import (
	"os"
	"path/filepath"
	"slices"
)

// besideProgram stands for the file below ../share of this program's directory:
// in a directory that holds a whole version, shim, configuration and guest belong
// together.
const besideProgram = "../share/defaults/kata-containers/configuration.toml"

// usualFiles returns defaultFiles for a program, whose path has no symbolic link.
func usualFiles(program string, err error) []string {
	var files []string
	for _, file := range defaultFiles {
		if file == besideProgram {
			if err != nil {
				continue
			}
			file = filepath.Join(filepath.Dir(program), besideProgram)
		}
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files
}

// besideGuest returns the directory with the guest of a program, whose path has no
// symbolic link: a shim whose version an upgrade replaces still opens its own
// version's guest.
func besideGuest(program string, err error) string {
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(program), "../share/kata-containers")
}

// chooseGuest replaces each default of the guest's files by the file beside the
// program, if there is one.
func (h host) chooseGuest(c *Config) {
	if h.guest == "" {
		return
	}
	for key, file := range map[string]*string{KernelKey: &c.Hypervisor.Kernel, InitrdKey: &c.Hypervisor.Initrd} {
		if _, named := c.Origins[key]; named {
			continue
		}
		own := filepath.Join(h.guest, filepath.Base(*file))
		if info, err := os.Stat(own); err == nil && info.Mode().IsRegular() {
			*file = own
		}
	}
}
