package ginkgo

import (
	"fmt"
	"slices"
)

// Draw returns those of the names that text draws, sorted: "N/SEED" draws one in N. The
// same text draws the same names, and N seeds in a row draw each name once.
func Draw(names []string, text string) ([]string, error) {
	var oneIn, seed uint64
	if _, err := fmt.Sscanf(text, "%d/%d", &oneIn, &seed); err != nil || oneIn == 0 {
		return nil, fmt.Errorf("draw cases by %q: want N/SEED", text)
	}
	sorted := slices.Sorted(slices.Values(names))
	var some []string
	for i := seed % oneIn; i < uint64(len(sorted)); i += oneIn {
		some = append(some, sorted[i])
	}
	return some, nil
}
