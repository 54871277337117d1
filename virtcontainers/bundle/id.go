package bundle

import (
	"fmt"
	"regexp"

	"github.com/containerd/errdefs"
)

// maxID is the longest id accepted, in bytes: ids become names of directories
// and of cgroups. Engines use 64 hexadecimal digits, or names of up to 76.
const maxID = 128

// An id is made of letters and digits, with single '-', '_' or '.' between
// them, as containerd's identifiers are; '_' twice is common in Docker names.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// CheckID refuses an id that cannot be a single path component.
func CheckID(id string) error {
	if len(id) == 0 || len(id) > maxID || !idPattern.MatchString(id) {
		return fmt.Errorf("id %q: want 1 to %d letters, digits, '-', '_' or '.', beginning with a letter or digit: %w",
			id, maxID, errdefs.ErrInvalidArgument)
	}
	return nil
}
