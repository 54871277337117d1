package engines

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// sheet has one runtime's outcomes by the names of rows, "scene: what was
// checked".
type sheet map[string]string

// difference is an intended difference between containers of Katabox and runc
// under an engine. docs/compat.md lists the same.
type difference struct {
	// engines are the names of the engines that show it; empty for all.
	engines []string
	// row is a pattern (path.Match, where "/" is a plain character).
	row string
	// runc and kata are patterns of the outcomes that are excused.
	runc, kata string
	why        string
}

// concerns reports whether the engine shows the difference.
func (d difference) concerns(engine string) bool {
	return len(d.engines) == 0 || slices.Contains(d.engines, engine)
}

// covers reports whether the difference excuses a row of an engine.
func (d difference) covers(engine, row, runc, kata string) bool {
	return d.concerns(engine) && matches(d.row, row) && matches(d.runc, runc) && matches(d.kata, kata)
}

// matches is path.Match in which "*" also matches "/", and nothing else is
// special.
func matches(pattern, text string) bool {
	plain := strings.NewReplacer("/", "\x00", `\`, `\\`, "[", `\[`, "?", `\?`)
	ok, err := path.Match(plain.Replace(pattern), strings.ReplaceAll(text, "/", "\x00"))
	return ok && err == nil
}

// compare lists the rows with unknown differences. Known differences that it
// sees are marked in seen, by their index in the list.
func compare(engine string, runc, kata sheet, known []difference, seen map[int]bool) []string {
	var complaints []string
	rows := maps.Clone(runc)
	maps.Copy(rows, kata)
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		a, b := outcome(runc, row), outcome(kata, row)
		if a == b {
			continue
		}
		excused := mendsQuirk(engine, row, a, b)
		for i, k := range known {
			if k.covers(engine, row, a, b) {
				excused, seen[i] = true, true
			}
		}
		if !excused {
			complaints = append(complaints, fmt.Sprintf("%s: runc %s, kata %s", row, a, b))
		}
	}
	return complaints
}

// outcome returns a row of a sheet, which may be missing if the scene was
// aborted.
func outcome(s sheet, row string) string {
	if value, ok := s[row]; ok {
		return value
	}
	return "no such row"
}

// unseen lists an engine's known differences that were not seen.
func unseen(engine string, known []difference, seen map[int]bool) []string {
	var complaints []string
	for i, k := range known {
		if k.concerns(engine) && !seen[i] {
			complaints = append(complaints, fmt.Sprintf("known, but not seen: %s: runc %s, kata %s", k.row, k.runc, k.kata))
		}
	}
	return complaints
}

// The comparison must find new, missing and vanished differences.
func TestCompare(t *testing.T) {
	runc := sheet{"same": "ok", "meant": "a", "new": "a", "lost": "a"}
	kata := sheet{"same": "ok", "meant": "b/c", "new": "b", "more": "b"}
	list := []difference{
		{row: "mea*", runc: "a", kata: "b*"},
		{row: "gone", runc: "a", kata: "b"},
		{row: "new", runc: "a", kata: "c"},
		{row: "new", runc: "a", kata: "b", engines: []string{"other"}},
	}
	seen := map[int]bool{}
	got := append(compare("this", runc, kata, list, seen), unseen("this", list, seen)...)
	want := []string{
		"lost: runc a, kata no such row",
		"more: runc no such row, kata b",
		"new: runc a, kata b",
		"known, but not seen: gone: runc a, kata b",
		"known, but not seen: new: runc a, kata c",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
