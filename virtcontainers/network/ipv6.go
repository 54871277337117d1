package network

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// readIPv6 notes which links have no IPv6. The calling thread must be in the
// namespace.
func (v *view) readIPv6() (err error) {
	if v.loWithoutIPv6, err = withoutIPv6("lo"); err != nil {
		return err
	}
	for i := range v.links {
		if v.links[i].withoutIPv6, err = withoutIPv6(v.links[i].name); err != nil {
			return err
		}
	}
	return nil
}

// withoutIPv6 reports whether a link of the calling thread's namespace has no
// IPv6: it is switched off (Documentation/networking/ip-sysctl.rst,
// disable_ipv6), its MTU is too small, or the kernel has none.
func withoutIPv6(name string) (bool, error) {
	text, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "disable_ipv6"))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("link %s: read whether it has IPv6: %w", name, err)
	}
	return string(bytes.TrimSpace(text)) == "1", nil
}
