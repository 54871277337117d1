package podnet

import (
	"fmt"
	"testing"
)

func TestLoopbackResolvers(t *testing.T) {
	for _, test := range []struct {
		servers []string
		want    string
	}{
		{[]string{"127.0.0.11"}, "[127.0.0.11]"},
		{[]string{"10.0.0.1", "127.0.0.11", "127.0.0.53", "127.0.0.11"}, "[127.0.0.11 127.0.0.53]"},
		{[]string{"127.0.0.1", "::1", "fe80::1%eth0", "localhost", "", "::ffff:127.0.0.11"}, "[]"},
	} {
		if got := fmt.Sprint(loopbackResolvers(test.servers)); got != test.want {
			t.Errorf("%q: %s, want %s", test.servers, got, test.want)
		}
	}
}
