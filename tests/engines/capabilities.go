package engines

import "golang.org/x/sys/unix"

// hasAllCapabilities reports whether root here has all of the kernel's
// capabilities, which it often lacks in a container.
func hasAllCapabilities() bool {
	for c := range 64 {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if err != nil {
			return c > 0 // beyond the last (capabilities(7))
		}
		if has == 0 {
			return false
		}
	}
	return true
}
