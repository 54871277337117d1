package guest

import (
	"math"
	"testing"
)

// What a guest says of a volume fits what engines read.
func TestUsageIsBounded(t *testing.T) {
	for _, test := range []struct{ said, want Usage }{
		{Usage{10, 6, 3}, Usage{10, 6, 3}},
		{Usage{10, 11, math.MaxUint64}, Usage{10, 10, 10}},
		{Usage{math.MaxUint64, math.MaxUint64, 1 << 63}, Usage{math.MaxInt64, math.MaxInt64, math.MaxInt64}},
		{Usage{0, 1, 2}, Usage{}},
	} {
		if got := usage(test.said.Total, test.said.Available, test.said.Used); got != test.want {
			t.Errorf("%v: %v, want %v", test.said, got, test.want)
		}
	}
}
