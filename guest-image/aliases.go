package main

import (
	"regexp"
	"strings"
)

// askedName matches a name that the kernel may request in full. Names of devices
// ("pci:v00001AF4d*...") have wildcards: those are for udev.
var askedName = regexp.MustCompile(`^[A-Za-z0-9_:,.-]+$`)

// asked reports whether the kernel may request a module by this alias
// (request_module). "devname:" aliases name a module's device node.
func asked(alias string) bool {
	return askedName.MatchString(alias) && !strings.HasPrefix(alias, "devname:")
}
