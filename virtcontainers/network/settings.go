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

// kernelSettings are the values that the kernel itself gives a new link, where they are
// not 0 (ipv4_devconf_dflt in net/ipv4/devinet.c, ipv6_devconf_dflt in
// net/ipv6/addrconf.c). The guest's links have these.
var kernelSettings = map[string]int32{
	"ipv4/accept_redirects": 1, "ipv4/accept_source_route": 1, "ipv4/secure_redirects": 1, "ipv4/send_redirects": 1, "ipv4/shared_media": 1,
	"ipv6/accept_ra": 1, "ipv6/accept_ra_defrtr": 1, "ipv6/accept_ra_pinfo": 1, "ipv6/accept_redirects": 1, "ipv6/autoconf": 1, "ipv6/hop_limit": 64,
}

// readSettings reads the settings of links that are not the kernel's: a program has set
// them for the link, or the namespace has them from the host, whose IPv4 defaults a new
// namespace copies. Which of the two cannot be told: a program may set a link's to what is
// the default. The calling thread must be in the namespace.
func (v *view) readSettings() error {
	for i := range v.links {
		l := &v.links[i]
		for _, name := range api.LinkSettings {
			value, ok, err := readSetting(l.name, name)
			if err != nil {
				return err
			}
			if ok && value != kernelSettings[name] {
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
