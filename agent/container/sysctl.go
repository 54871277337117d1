package container

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// procSys is where the kernel shows its sysctls.
const procSys = "/proc/sys"

// setSysctls writes sysctls whose names begin with one of kinds.
func setSysctls(values map[string]string, kinds ...string) error {
	for key, value := range values {
		file, err := sysctlFile(key, kinds...)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return fmt.Errorf("set sysctl %s to %q: %w", key, value, err)
		}
	}
	return nil
}

// sysctlName returns a sysctl's path below procSys. The first separator says which
// of '.' and '/' separates the words; inside a word the other one stands for it,
// as in "net.ipv4.conf.eth0/100.rp_filter" (sysctl.d(5)).
func sysctlName(key string) string {
	if i := strings.IndexAny(key, "./"); i >= 0 && key[i] == '.' {
		return strings.NewReplacer(".", "/", "/", ".").Replace(key)
	}
	return key
}

// sysctlFile returns the path of a sysctl's file. Its name must begin with one of
// kinds.
func sysctlFile(key string, kinds ...string) (string, error) {
	name := sysctlName(key)
	file := path.Join(procSys, name)
	has := func(kind string) bool { return strings.HasPrefix(file, procSys+"/"+kind) }
	if file != procSys+"/"+name || !slices.ContainsFunc(kinds, has) {
		return "", fmt.Errorf("set sysctl %q: want a name in %s", key, strings.Join(kinds, " or "))
	}
	return file, nil
}
