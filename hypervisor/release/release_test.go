package release

import "testing"

func TestParse(t *testing.T) {
	for version, want := range map[string]string{
		"7.2.22 (Debian 1:7.2+dfsg-7)": "7.2",
		"10.0":                         "10.0",
		"8.1.0-rc1":                    "8.1",
		"":                             "",
		"7":                            "",
		"version 7.2":                  "",
		"123456.0":                     "",
	} {
		got := ""
		if r, ok := Parse(version); ok {
			got = r.String()
		}
		if got != want {
			t.Errorf("Parse(%q) = %q, want %q", version, got, want)
		}
	}
}

func TestBefore(t *testing.T) {
	order := []Release{{7, 2}, {8, 0}, {8, 1}, {10, 0}}
	for i, a := range order {
		for j, b := range order {
			if a.Before(b) != (i < j) {
				t.Errorf("%v before %v: %t", a, b, a.Before(b))
			}
		}
	}
}
