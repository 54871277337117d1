package harness

import (
	"strings"
	"testing"
)

func TestFindOther(t *testing.T) {
	const (
		good  = `level=info msg="sandbox booted" accel=kvm sandbox=a vsock=vhost-vsock` + "\n"
		slow  = `level=info msg="sandbox booted" accel=tcg sandbox=b vsock=vhost-vsock` + "\n"
		own   = `level=info msg="sandbox booted" accel=kvm sandbox=c vsock=vhost-user-vsock` + "\n"
		other = `level=info msg="accel=tcg is not meant"` + "\n"
	)
	for _, test := range []struct {
		name, log string
		read      int
		found     []string
	}{
		{"none", "", 0, nil},
		{"good", good + other, len(good + other), nil},
		{"bad", slow + good + own, len(slow + good + own), []string{"sandbox=b", "sandbox=c"}},
		{"half a line", good + strings.TrimSpace(slow), len(good), nil},
	} {
		read, err := findOther(strings.NewReader(test.log), accelWords["kvm"])
		if read != int64(test.read) || (err == nil) != (len(test.found) == 0) {
			t.Errorf("%s: read %d, want %d; %v", test.name, read, test.read, err)
		}
		for _, word := range test.found {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v, want it to name %s", test.name, err, word)
			}
		}
	}
}
