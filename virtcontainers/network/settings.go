package network

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/katabox/katabox/agent/api"
)

// readSettings reads the settings of links that are not the namespace's usual ones: a
// program has set them for the link. The calling thread must be in the namespace.
func (v *view) readSettings() error {
	if len(v.links) == 0 {
		return nil
	}
	for _, name := range api.LinkSettings {
		usual, ok, err := readSetting("default", name)
		if err != nil {
			return err
		}
		for i := 0; ok && i < len(v.links); i++ {
			l := &v.links[i]
			value, ok, err := readSetting(l.name, name)
			if err != nil {
				return err
			}
			if ok && value != usual {
				l.settings = append(l.settings, &api.Setting{Name: name, Value: value})
			}
		}
	}
	return nil
}

// readSetting reads a setting of a link. ok is false if the kernel does not have it,
// or the link has gone.
func readSetting(link, name string) (value int32, ok bool, err error) {
	family, file := filepath.Split(name)
	text, err := os.ReadFile(filepath.Join("/proc/sys/net", family, "conf", link, file))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("link %s: read its setting %s: %w", link, name, err)
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 32)
	if err != nil {
		return 0, false, fmt.Errorf("link %s: read its setting %s: %w", link, name, err)
	}
	return int32(n), true, nil
}
