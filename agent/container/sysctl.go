package container

import (
	"fmt"
	"os"
	"path"
	"strings"
)

// procSys is where the kernel shows its sysctls.
const procSys = "/proc/sys"

// setSysctls writes sysctls of the guest's network namespace.
func setSysctls(values map[string]string) error {
	for key, value := range values {
		file, err := sysctlFile(key)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return fmt.Errorf("set sysctl %s: %w", key, err)
		}
	}
	return nil
}

// sysctlFile returns the path of a sysctl's file. The first separator says which
// of '.' and '/' separates the words; inside a word the other one stands for it,
// as in "net.ipv4.conf.eth0/100.rp_filter" (sysctl.d(5)).
func sysctlFile(key string) (string, error) {
	name := key
	if i := strings.IndexAny(key, "./"); i >= 0 && key[i] == '.' {
		name = strings.NewReplacer(".", "/", "/", ".").Replace(key)
	}
	file := path.Join(procSys, name)
	if file != procSys+"/"+name || !strings.HasPrefix(file, procSys+"/net/") {
		return "", fmt.Errorf("set sysctl %q: not a name of the network's", key)
	}
	return file, nil
}
