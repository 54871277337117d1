package qemu

import (
	"fmt"
	"path/filepath"

	"github.com/katabox/katabox/hypervisor"
)

// maxSocketPath is the longest path of a UNIX socket, in bytes (unix(7)).
const maxSocketPath = 107

func checkMonitor(m hypervisor.ExtraMonitor) error {
	switch {
	case m == hypervisor.ExtraMonitor{}:
		return nil
	case m.Language != hypervisor.MonitorHMP && m.Language != hypervisor.MonitorQMP && m.Language != hypervisor.MonitorQMPPretty:
		return fmt.Errorf("extra monitor's language %q: neither %q nor %q nor %q", m.Language,
			hypervisor.MonitorHMP, hypervisor.MonitorQMP, hypervisor.MonitorQMPPretty)
	case !filepath.IsAbs(m.Path) || len(m.Path) > maxSocketPath:
		return fmt.Errorf("extra monitor's socket %q: not an absolute path of at most %d bytes", m.Path, maxSocketPath)
	}
	return nil
}

func extraMonitor(m hypervisor.ExtraMonitor) []string {
	if m.Path == "" {
		return nil
	}
	mode := map[hypervisor.MonitorLanguage]string{
		hypervisor.MonitorHMP:       "mode=readline",
		hypervisor.MonitorQMP:       "mode=control",
		hypervisor.MonitorQMPPretty: "mode=control,pretty=on",
	}[m.Language]
	return []string{
		"-chardev", "socket,id=extra,server=on,wait=off,path=" + optionValue(m.Path),
		"-mon", "chardev=extra," + mode,
	}
}
