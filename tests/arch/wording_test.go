package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// wording is what HACKING.md's section on language says and a pattern can find.
// advice is what to write instead.
var wording = []struct{ pattern, advice string }{
	{`[tT]ells whether\b`, `"reports whether"`},
	{`\bsign of life\b`, `"health check", or what did not come`},
	{`\bin vain\b`, `say what does not happen`},
	{`\bis no (directory|regular file|character device|namespace|absolute path|number|module|slice)\b`, `"is not a ..."`},
	{`\b(device|directory|file|namespace|process|session|socket|thread|VM) of (its|their|our) own\b`, `"its own ..."`},
	{`"(await|look at|look for|look into|take away|bring up to) `, `an error begins with what failed: "wait for", "inspect", "find", "remove"`},
}

// TestWording looks for phrases that make readers stop. Generated code and the
// decisions of docs/adr, which are history, are left out.
func TestWording(t *testing.T) {
	rules := make([]*regexp.Regexp, len(wording))
	all := make([]string, len(wording))
	for i, w := range wording {
		rules[i], all[i] = regexp.MustCompile(w.pattern), w.pattern
	}
	either := regexp.MustCompile(strings.Join(all, "|"))
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
