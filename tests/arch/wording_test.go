package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// wording is what HACKING.md's section on language says and a pattern can find:
// a phrase that it finds, and what to write instead.
var wording = []struct{ pattern, example, advice string }{
	{`[tT]ells whether\b`, "tells whether it runs", `"reports whether"`},
	{`\bsign of life\b`, "gave no sign of life", `"health check", or what did not come`},
	{`\bin vain\b`, "waits in vain", `say what does not happen`},
	{`\bis no (directory|regular file|character device|namespace|absolute path|number|module|slice)\b`,
		"is no directory", `"is not a ..."`},
	{`\b(` + ownable + `)s? of (its|their|our|his) own\b`, "a process of its own", `"its own ..."`},
	{`\bof (its|their|our|his) own([.,;:)]|$)`, "counters of their own.", `"its own ..."`},
	{`\b[wW]hoever\b`, "Whoever comes first", `name who acts: the engine, the shim, another process`},
	{`(^|[\s(])([nN]obody|[sS]omebody|[aA]nybody|[eE]verybody)('s)?([\s.,;)]|$)`, "nobody reads it",
		`name who acts, or what is missing: "without a reader", "no listener"`},
	{`(//|[.;:,]|\b(by|for|to|of|tells?|wakes?|stops|blocks)) [wW]ho (` + deeds + `)\b`, "wakes who waits",
		`name who acts: "the waiters", "a process that"`},
	{`\bwhat who\b`, "is what who changes it must hold", `name who acts`},
	{`\bfor ever\b`, "waits for ever", `"forever", "without a timeout", "indefinitely"`},
	{`\b(takes?|taken|taking|took) ((it|them|this|that) )?away\b`, "takes it away", `"remove"`},
	{`\blets? go of\b`, "lets go of it", `"release"`},
	{`"(await|look at|look for|look into|take away|bring up to) `, `"look at file"`,
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
	all := make([]string, len(wording))
	for i, w := range wording {
		rules[i], all[i] = regexp.MustCompile(w.pattern), w.pattern
	}
	either := regexp.MustCompile("(?m)" + strings.Join(all, "|"))
	for _, s := range sources(t) {
		if s.isGenerated || filepath.Base(s.path) == "wording_test.go" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, s.path))
		if err != nil {
			t.Fatal(err)
		}
		if !either.Match(data) {
			continue
		}
		for n, line := range strings.Split(string(data), "\n") {
			for i, rule := range rules {
				if found := rule.FindString(line); found != "" && !strings.Contains(line, "there "+found) {
					t.Errorf("%s:%d: %q: write %s", s.path, n+1, found, wording[i].advice)
				}
			}
		}
	}
}

func TestWordingFindsItsExamples(t *testing.T) {
	for _, w := range wording {
		if !regexp.MustCompile(w.pattern).MatchString(w.example) {
			t.Errorf("%s does not find %q", w.pattern, w.example)
		}
	}
}
