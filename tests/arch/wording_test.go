package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// wording is what HACKING.md's section on language says and a pattern can find:
// a phrase that it finds, and what to write instead. Whatever the pattern matches
// contains the hint, which is found much faster.
var wording = []struct{ hint, pattern, example, advice string }{
	{"ells whether", `[tT]ells whether\b`, "tells whether it runs", `"reports whether"`},
	{"sign of life", `\bsign of life\b`, "gave no sign of life", `"health check", or what did not come`},
	{"in vain", `\bin vain\b`, "waits in vain", `say what does not happen`},
	{"is no ", `\bis no (directory|regular file|character device|namespace|absolute path|number|module|slice)\b`,
		"is no directory", `"is not a ..."`},
	{" own", `\b(` + ownable + `)s? of (its|their|our|his) own\b`, "a process of its own", `"its own ..."`},
	{" own", `\bof (its|their|our|his) own([.,;:)]|$)`, "counters of their own.", `"its own ..."`},
	{"hoever", `\b[wW]hoever\b`, "Whoever comes first", `name who acts: the engine, the shim, another process`},
	{"body", `(^|[\s(])([nN]obody|[sS]omebody|[aA]nybody|[eE]verybody)('s)?([\s.,;)]|$)`, "nobody reads it",
		`name who acts, or what is missing: "without a reader", "no listener"`},
	{"ho ", `(//|[.;:,]|\b(by|for|to|of|tells?|wakes?|stops|blocks)) [wW]ho (` + deeds + `)\b`, "wakes who waits",
		`name who acts: "the waiters", "a process that"`},
	{"what who", `\bwhat who\b`, "is what who changes it must hold", `name who acts`},
	{"for ever", `\bfor ever\b`, "waits for ever", `"forever", "without a timeout", "indefinitely"`},
	{"away", `\b(takes?|taken|taking|took) ((it|them|this|that) )?away\b`, "takes it away", `"remove"`},
	{" go of", `\blets? go of\b`, "lets go of it", `"release"`},
	{`"`, `"(await|look at|look for|look into|take away|bring up to) `, `"look at file"`,
		`an error begins with what failed: "wait for", "inspect", "find", "remove"`},
}

const (
	// ownable are things that were found to have one of their own.
	ownable = `binary|cgroup|container|copy|device|director(y|ie)|disk|file|group|host|kernel|limit|list|machine|method|mount|name|` +
		`namespace|network|package|pod|port|process|program|root|session|socket|storage|step|table|test|thread|timeout|type|user|vCPU|VM`
	// deeds are verbs that a riddle's who was found with.
	deeds = `waits|wants|asks|uses|reads|writes|comes|calls|fails|has|is|can|may|does|sees|looks|needs|knows|runs|owns|touches`
)

// TestWording looks for phrases that make readers stop. Generated code and the
// decisions of docs/adr, which are history, are left out.
func TestWording(t *testing.T) {
	rules := make([]*regexp.Regexp, len(wording))
	for i, w := range wording {
		rules[i] = regexp.MustCompile(w.pattern)
	}
	for _, s := range sources(t) {
		if s.isGenerated || filepath.Base(s.path) == "wording_test.go" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, s.path))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(data), "\n")
		for i, w := range wording {
			if !strings.Contains(string(data), w.hint) {
				continue
			}
			for n, line := range lines {
				if !strings.Contains(line, w.hint) {
					continue
				}
				if found := rules[i].FindString(line); found != "" && !strings.Contains(line, "there "+found) {
					t.Errorf("%s:%d: %q: write %s", s.path, n+1, found, w.advice)
				}
			}
		}
	}
}

func TestWordingFindsItsExamples(t *testing.T) {
	for _, w := range wording {
		found := regexp.MustCompile(w.pattern).FindString(w.example)
		if found == "" || !strings.Contains(found, w.hint) {
			t.Errorf("%s finds %q in %q, want something with %q", w.pattern, found, w.example, w.hint)
		}
	}
}
