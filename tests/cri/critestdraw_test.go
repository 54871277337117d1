package cri

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/katabox/katabox/tests/cri/env"
	"github.com/katabox/katabox/tests/ginkgo"
)

// EnvDraw, when it is not empty, has TestCritest run a part of the cases, and all that are
// known to differ: N/SEED draws one in N. With EnvWhole all run.
const EnvDraw = "KATABOX_TEST_CRI_DRAW"

// drawn returns what EnvDraw selects, everything without it, and a line about it. What is
// known to differ is always among it: the list is checked whole.
func drawn(ctx context.Context, t *testing.T) (selection, string) {
	t.Helper()
	text := os.Getenv(EnvDraw)
	if text == "" || os.Getenv(EnvWhole) != "" {
		return selection{}, ""
	}
	names := cases(ctx, t)
	some, err := ginkgo.Draw(names, text)
	if err != nil {
		t.Fatal(err)
	}
	note := fmt.Sprintf("%s=%s: %d of %d cases, and those that are known to differ\n", EnvDraw, text, len(some), len(names))
	for _, k := range known {
		some = append(some, k.Name)
	}
	return selection{focus: ginkgo.Pattern(some)}, note
}

// cases returns the names of all cases of the suite, of which it runs none.
func cases(ctx context.Context, t *testing.T) []string {
	t.Helper()
	report := filepath.Join(t.TempDir(), "cases.json")
	cmd := exec.CommandContext(ctx, env.CritestPath(bed.layout), "-ginkgo.dry-run", "-ginkgo.json-report", report)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("list critest's cases: %v\n%s", err, out)
	}
	all, err := ginkgo.Read(report)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(maps.Keys(all.Cases))
}

// A case that is not drawn is not compared; one that is drawn is, and so is one that is
// known to differ.
func TestDrawnCasesAreCompared(t *testing.T) {
	kata := ginkgo.Results{Cases: map[string]ginkgo.Outcome{
		"a": {State: ginkgo.Failed}, "b": {State: ginkgo.Left}, "c": {State: ginkgo.Passed}, "[x] known": {State: ginkgo.Left},
	}}
	for _, tc := range []struct {
		focus string
		want  []string
	}{
		{"", []string{"[x] known", "a", "b"}},
		{ginkgo.Pattern([]string{"a", "c", "[x] known"}), []string{"[x] known", "a"}},
	} {
		got := selection{focus: tc.focus}.notPassed(kata)
		if slices.Sort(got); !slices.Equal(got, tc.want) {
			t.Errorf("%q: compares %v, want %v", tc.focus, got, tc.want)
		}
	}
}
