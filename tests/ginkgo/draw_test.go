package ginkgo

import (
	"slices"
	"testing"
)

func TestDraw(t *testing.T) {
	names := []string{"c", "a", "e", "b", "d"}
	var all []string
	for text, want := range map[string][]string{"3/0": {"a", "d"}, "3/7": {"b", "e"}, "3/18446744073709551614": {"c"}} {
		got, err := Draw(names, text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s draws %v, %v; want %v", text, got, err, want)
		}
		all = append(all, got...)
	}
	if len(all) != len(names) {
		t.Errorf("three seeds in a row draw %v", all)
	}
	for _, text := range []string{"", "2", "0/1", "-1/1", "x/1"} {
		if got, err := Draw(names, text); err == nil {
			t.Errorf("%q draws %v", text, got)
		}
	}
}
