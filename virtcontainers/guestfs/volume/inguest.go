package volume

import (
	"os"
	"path"
	"strings"
)

// maxLinks bounds how many links a path may lead through, as the kernel does
// (path_resolution(7)).
const maxLinks = 40

// InGuest returns the path below /proc or /sys to which an absolute path leads by
// symbolic links, "" if to none. It follows no link below these: the guest's kernel is
// to resolve them, such as /proc/self.
func InGuest(source string) string {
	done, rest := "/", source
	for links := 0; rest != "" && links <= maxLinks; {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		next := path.Join(done, part) // Handles ".." and "".
		if at := path.Join(next, rest); isKernels(next) && isKernels(at) {
			return at
		}
		target, err := os.Readlink(next)
		if err != nil {
			done = next
			continue
		}
		links++
		if path.IsAbs(target) {
			done = "/"
		}
		rest = target + "/" + rest
	}
	return ""
}

// isKernels reports whether a clean path is /proc or /sys, or below one of them.
func isKernels(name string) bool {
	for _, dir := range []string{"/proc", "/sys"} {
		if rest, ok := strings.CutPrefix(name, dir); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}
