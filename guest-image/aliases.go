package main

import (
	"regexp"
	"strings"
)

// askedName is a name that a kernel may ask for whole. Names of devices
// ("pci:v00001AF4d*...") have wildcards: those are for udev.
var askedName = regexp.MustCompile(`^[A-Za-z0-9_:,.-]+$`)

// asked reports whether the kernel may ask for a module by this alias
// (request_module). "devname:" says which device node a module stands behind.
func asked(alias string) bool {
	return askedName.MatchString(alias) && !strings.HasPrefix(alias, "devname:")
}
