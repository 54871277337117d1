// Package release compares the versions that programs print, by their first two
// numbers.
package release

import (
	"fmt"
	"regexp"
	"strconv"
)

// Release is the first two numbers of a version.
type Release struct{ Major, Minor int }

var pattern = regexp.MustCompile(`^([0-9]{1,5})\.([0-9]{1,5})`)

// Parse reads the beginning of a version, such as "7.2.22 (Debian ...)". It
// reports whether there is one.
func Parse(version string) (Release, bool) {
	m := pattern.FindStringSubmatch(version)
	if m == nil {
		return Release{}, false
	}
	major, _ := strconv.Atoi(m[1]) // five digits each
	minor, _ := strconv.Atoi(m[2])
	return Release{major, minor}, true
}

// Before reports whether r is older than o.
func (r Release) Before(o Release) bool {
	return r.Major < o.Major || r.Major == o.Major && r.Minor < o.Minor
}

func (r Release) String() string { return fmt.Sprintf("%d.%d", r.Major, r.Minor) }
