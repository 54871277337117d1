package ginkgo

import (
	"fmt"
	"os"
	"strings"
)

// Table returns a list in the documentation's format.
func Table(known []Exception) string {
	var b strings.Builder
	b.WriteString("| case | why a virtual machine cannot |\n| --- | --- |\n")
	for _, k := range known {
		fmt.Fprintf(&b, "| %s | %s |\n", strings.ReplaceAll(k.Name, "|", `\|`), k.Why)
	}
	return b.String()
}

// CheckPage returns an error unless a page has that list, and nothing else,
// between its marks "<!-- NAME: begin -->" and "<!-- NAME: end -->".
func CheckPage(page, name string, known []Exception) error {
	data, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	_, rest, ok := strings.Cut(string(data), "<!-- "+name+": begin -->\n")
	got, _, end := strings.Cut(rest, "<!-- "+name+": end -->")
	if !ok || !end {
		return fmt.Errorf("%s lacks the marks of %s", page, name)
	}
	if want := Table(known); got != want {
		return fmt.Errorf("%s differs from the list in the test; between the marks it should say:\n%s", page, want)
	}
	return nil
}
