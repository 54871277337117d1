package container

import "testing"

// The pod's limit holds below the guest's, also after the guest has got more memory.
func TestThreadLimits(t *testing.T) {
	for _, test := range []struct {
		allowed, reserved, pod, want uint64
	}{
		{allowed: 4000, reserved: 512, want: 3488},
		{allowed: 4000, reserved: 512, pod: 100, want: 100},
		{allowed: 4000, reserved: 512, pod: 5000, want: 3488},
		{allowed: 80000, reserved: 512, pod: 5000, want: 5000},
		{allowed: 512, reserved: 512, pod: 100},
	} {
		l := &threadLimits{reserved: test.reserved, pod: test.pod}
		if got, err := l.of(test.allowed); got != test.want || (err == nil) != (test.want > 0) {
			t.Errorf("%+v: %d, %v", test, got, err)
		}
	}
}
