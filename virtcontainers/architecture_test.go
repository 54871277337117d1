package virtcontainers_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/virtcontainers"
)

// stepRow is a row of a table of steps.
var stepRow = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|")

// ARCHITECTURE.md lists the steps of a boot, in their order.
func TestArchitectureHasTheSteps(t *testing.T) {
	page, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(page), "The boot is a list of named steps")
	table, _, end := strings.Cut(after, "A container is created by a list of steps too")
	if !found || !end {
		t.Fatal("ARCHITECTURE.md has no table of the boot's steps any more")
	}
	var steps []string
	for _, row := range stepRow.FindAllStringSubmatch(table, -1) {
		steps = append(steps, row[1])
	}
	if diff := cmp.Diff(virtcontainers.BootSteps(), steps); diff != "" {
		t.Errorf("the steps of a boot (-code +ARCHITECTURE.md): %s", diff)
	}
}
