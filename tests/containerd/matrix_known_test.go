package containerd

import (
	"fmt"
	"path"
	"strings"
	"testing"
)

// difference is an intended difference between Katabox and runc's shim.
// docs/compat.md lists the same.
type difference struct {
	// rows are patterns (path.Match, where "/" is a plain character).
	rows []string
	// runc and kata are the outcomes: exactly these are excused.
	runc, kata string
	// release limits the difference to one containerd ("1.6"), of whatever
	// patch level; empty for all.
	release string
	why     string
}

// matches reports whether the pattern fits the name of a row.
func matches(pattern, name string) bool {
	// With path.Match "*" does not match "/"; rows have none.
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// covers returns the pattern by which the difference excuses a row, or "".
func (k difference) covers(name, runc, kata string) string {
	if k.runc != runc || k.kata != kata {
		return ""
	}
	for _, pattern := range k.rows {
		if matches(pattern, name) {
			return pattern
		}
	}
	return ""
}

// applies reports whether the difference exists with a containerd of that
// version ("1.6.20"). On a newer distribution the suites' 1.6 is a newer
// release.
func (k difference) applies(version string) bool {
	return k.release == "" || strings.HasPrefix(version+".", k.release+".")
}

// compare lists unknown differences, and known ones that were not seen, with a
// containerd of that version.
func compare(version string, runc, kata *sheet, known []difference) []string {
	var complaints []string
	seen := map[string]bool{}
	key := func(i int, pattern string) string { return fmt.Sprint(i, pattern) }
	for _, name := range runc.order {
		a, b := runc.rows[name], kata.rows[name]
		if a == b {
			continue
		}
		excused := false
		for i, k := range known {
			if pattern := k.covers(name, a, b); pattern != "" && k.applies(version) {
				excused, seen[key(i, pattern)] = true, true
			}
		}
		if !excused {
			complaints = append(complaints, fmt.Sprintf("%s: runc %q, kata %q", name, a, b))
		}
	}
	for _, name := range kata.order {
		if _, ok := runc.rows[name]; !ok {
			complaints = append(complaints, fmt.Sprintf("%s: only kata has this row", name))
		}
	}
	for i, k := range known {
		for _, pattern := range k.rows {
			if k.applies(version) && !seen[key(i, pattern)] {
				complaints = append(complaints, fmt.Sprintf("known, but not seen: %s: runc %q, kata %q", pattern, k.runc, k.kata))
			}
		}
	}
	return complaints
}

// The comparison must find new, wrong and vanished differences.
func TestMatrixCompares(t *testing.T) {
	runc, kata := newSheet(), newSheet()
	for _, r := range [][3]string{{"same", "ok", "ok"}, {"meant 1", "a", "b"}, {"meant 2", "a", "c"}, {"new", "a", "b"}} {
		if runc.note(r[0], r[1]) != nil || kata.note(r[0], r[2]) != nil {
			t.Fatal("a new row was refused")
		}
	}
	if runc.note("same", "ok") == nil {
		t.Error("a row was noted twice")
	}
	list := []difference{
		{rows: []string{"meant *"}, runc: "a", kata: "b"},
		{rows: []string{"gone"}, runc: "a", kata: "b"},
		{rows: []string{"gone here"}, runc: "a", kata: "b", release: "1.7"},
		{rows: []string{"elsewhere"}, runc: "a", kata: "b", release: "1.6"},
		{rows: []string{"later"}, runc: "a", kata: "b", release: "1.70"},
	}
	got := strings.Join(compare("1.7.24", runc, kata, list), "\n")
	want := `meant 2: runc "a", kata "c"
new: runc "a", kata "b"
known, but not seen: gone: runc "a", kata "b"
known, but not seen: gone here: runc "a", kata "b"`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// docs/compat.md has the same lists, each between its two marks.
func TestCompatPageListsWhatIsKnown(t *testing.T) {
	for mark, list := range map[string][]difference{"matrix": known, "files": fileDifferences} {
		if err := bed.layout.CheckCompatPage(mark, knownTable(list)); err != nil {
			t.Error(err)
		}
	}
}

// knownTable returns a list in the page's format.
func knownTable(list []difference) string {
	var b strings.Builder
	b.WriteString("| rows | runc's shim | Katabox | why |\n| --- | --- | --- | --- |\n")
	for _, k := range list {
		rows := "`" + strings.Join(k.rows, "`, `") + "`"
		if k.release != "" {
			rows += " (containerd " + k.release + ")"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", rows, k.runc, k.kata, k.why)
	}
	return b.String()
}
