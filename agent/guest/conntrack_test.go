package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The table of connections that an init container's rules made grows with the guest, but
// not beyond a limit that a container has set.
func TestConntrackFollowsMemory(t *testing.T) {
	for name, c := range map[string]struct {
		buckets, most string // "" is a module that is not loaded
		mib           uint64
		commandLine   string
		want          string // of buckets and the limit
	}{
		"more memory":         {"2048", "2048", 3 << 10, "", "65536 65536"},
		"a lot more":          {"2048", "2048", 16 << 10, "", "262144 262144"},
		"a little more":       {"2048", "2048", 512, "", "4096 4096"},
		"no more":             {"65536", "65536", 512, "", "65536 65536"},
		"made with more":      {"7680", "7680", 3 << 10, "", "65536 65536"},
		"set by a container":  {"2048", "5000", 16 << 10, "", "2048 5000"},
		"both are":            {"5000", "5000", 16 << 10, "", "5000 5000"},
		"to others' values":   {"65536", "65536", 16 << 10, "", "65536 65536"},
		"set by the operator": {"2048", "2048", 16 << 10, "sysctl.net.netfilter.nf_conntrack_buckets=2048", "2048 2048"},
		"the limit is":        {"2048", "2048", 16 << 10, "sysctl.net.netfilter.nf_conntrack_max=2048", "2048 2048"},
		"by its other name":   {"2048", "2048", 16 << 10, "sysctl.net.nf_conntrack_max=2048", "2048 2048"},
		"not loaded":          {"", "", 16 << 10, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, f := smallMachine(t, c.commandLine)
			f.write(t, f.proc+"/zoneinfo", grown)
			f.write(t, f.proc+"/meminfo", "MemTotal:  979000 kB\n") // it had 1 GiB meanwhile
			must(t, r.net.raise(1<<10))
			if c.buckets != "" {
				f.write(t, filepath.Join(f.proc, "sys", conntrackBuckets), c.buckets+"\n")
				f.write(t, filepath.Join(f.proc, "sys", conntrackMax), c.most+"\n")
			}
			must(t, r.net.raise(c.mib))
			var got []string
			for _, file := range []string{conntrackBuckets, conntrackMax} {
				if c.buckets != "" {
					text, err := os.ReadFile(filepath.Join(f.proc, "sys", file))
					must(t, err)
					got = append(got, strings.TrimSpace(string(text)))
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%q, want %s", got, c.want)
			}
		})
	}
}

// A limit that cannot be read says which.
func TestConntrackOfNonsense(t *testing.T) {
	r, f := smallMachine(t, "")
	f.write(t, f.proc+"/zoneinfo", grown)
	f.write(t, filepath.Join(f.proc, "sys", conntrackBuckets), "many\n")
	if err := r.net.raise(384); err == nil || !strings.Contains(err.Error(), conntrackBuckets) {
		t.Error(err)
	}
}
