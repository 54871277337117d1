package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// CheckCompatPage returns an error unless docs/compat.md has that text, and nothing else,
// between its marks "<!-- NAME: begin -->" and "<!-- NAME: end -->".
func (l Layout) CheckCompatPage(name, want string) error {
	const page = "docs/compat.md"
	data, err := os.ReadFile(filepath.Join(l.Root, page))
	if err != nil {
		return err
	}
	_, rest, ok := strings.Cut(string(data), "<!-- "+name+": begin -->\n")
	got, _, end := strings.Cut(rest, "<!-- "+name+": end -->")
	if !ok || !end {
		return fmt.Errorf("%s lacks the marks of %s", page, name)
	}
	if got != want {
		return fmt.Errorf("%s differs from the list in the test; between the marks of %s it should say:\n%s", page, name, want)
	}
	return nil
}
