package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/katabox/katabox/agent/api"
)

// confNet has a directory of settings for each family (Documentation/networking/
// ip-sysctl.rst).
const confNet = "/proc/sys/net"

// setSettings applies the host's settings to NICs, and resets those that the host no
// longer has to the guest's defaults. Containers' settings stay until the host's
// change.
func (j *job) setSettings(context.Context) error {
	for _, nic := range j.want.nics {
		if err := j.resetSettings(nic); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(nic.settings)) {
			value := nic.settings[name]
			if have, ok := j.own.settings[nic.index][name]; ok && have == value {
				continue
			}
			if err := j.setSetting(nic, name, strconv.Itoa(int(value))); err != nil {
				return err
			}
			if j.own.settings[nic.index] == nil {
				j.own.settings[nic.index] = map[string]int32{}
			}
			j.own.settings[nic.index][name] = value
		}
	}
	return nil
}

// resetSettings resets a NIC's settings that the host no longer has to the defaults.
func (j *job) resetSettings(nic nic) error {
	own := j.own.settings[nic.index]
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if _, wanted := nic.settings[name]; wanted {
			continue
		}
		usual, err := os.ReadFile(settingFile("default", name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("interface %s: read the usual %s: %w", nic.name, name, err)
		}
		if err == nil { // else the NIC never had the setting
			if err := j.setSetting(nic, name, string(bytes.TrimSpace(usual))); err != nil {
				return err
			}
		}
		delete(own, name)
	}
	return nil
}

// setSetting sets one setting. A kernel without it, or without the family, is left as
// it is, and the changes say so.
func (j *job) setSetting(nic nic, name, value string) error {
	path := settingFile(nic.name, name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		j.changes.addf("interface %s: it has no setting %s", nic.name, name)
		return nil
	}
	if err := writeExisting(path, value); err != nil {
		return fmt.Errorf("interface %s: set %s to %s: %w", nic.name, name, value, err)
	}
	j.changes.addf("interface %s: %s set to %s", nic.name, name, value)
	return nil
}

func settingFile(link, name string) string {
	family, file := filepath.Split(name)
	return filepath.Join(confNet, family, "conf", link, file)
}

// checkSettings reads an interface's settings.
func checkSettings(field string, in *api.Interface) (map[string]int32, error) {
	if err := tooMany(field+".settings", len(in.GetSettings()), len(api.LinkSettings)); err != nil {
		return nil, err
	}
	settings := map[string]int32{}
	for i, s := range in.GetSettings() {
		_, twice := settings[s.GetName()]
		if twice || !slices.Contains(api.LinkSettings, s.GetName()) {
			return nil, wrong(fmt.Sprintf("%s.settings[%d].name", field, i), s.GetName(), "a setting that a guest can have, and once")
		}
		settings[s.GetName()] = s.GetValue()
	}
	return settings, nil
}
