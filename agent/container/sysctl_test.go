package container

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeSysctls has some sysctls with the value 0, and a guest image with the module
// nf_conntrack.
func fakeSysctls(t *testing.T) (s sysctls, loaded *[]string) {
	t.Helper()
	loaded = &[]string{}
	s = sysctls{dir: t.TempDir()}
	add := func(name string) {
		file := filepath.Join(s.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("0\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	add("net/core/somaxconn")
	add("net/ipv4/ip_forward")
	s.load = func(module string) error {
		*loaded = append(*loaded, module)
		if module != "nf_conntrack" {
			return errors.New("load module " + module + ": neither in the guest image nor built into its kernel")
		}
		add("net/netfilter/nf_conntrack_max")
		add("net/nf_conntrack_max")
		return nil
	}
	return s, loaded
}

func (s sysctls) value(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// A sysctl of a module that nothing has loaded is there once it is to be set.
func TestSysctlsOfModules(t *testing.T) {
	s, loaded := fakeSysctls(t)
	if _, err := s.set(map[string]string{"net.netfilter.nf_conntrack_max": "9", "net.core.somaxconn": "7"}, "net/"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.set(map[string]string{"net.nf_conntrack_max": "8"}, "net/"); err != nil {
		t.Fatal(err)
	}
	if got := s.value(t, "net/netfilter/nf_conntrack_max") + s.value(t, "net/nf_conntrack_max") + s.value(t, "net/core/somaxconn"); got != "987" {
		t.Errorf("the values are %q", got)
	}
	if !slices.Equal(*loaded, []string{"nf_conntrack"}) {
		t.Errorf("loaded %q", *loaded)
	}
}

// If a sysctl cannot be set, the others are as before.
func TestSysctlsThatCannotBeSet(t *testing.T) {
	for key, want := range map[string]string{
		"net.nosuch":                         "net.nosuch",
		"net.bridge.bridge-nf-call-iptables": "load module br_netfilter",
		"net.netfilter.nf_conntrack_nosuch":  "nf_conntrack_nosuch",
		"vm.overcommit_memory":               "want a name in net/",
	} {
		s, _ := fakeSysctls(t)
		_, err := s.set(map[string]string{"net.ipv4.ip_forward": "1", "net.core.somaxconn": "7", key: "1"}, "net/")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
		if got := s.value(t, "net/ipv4/ip_forward") + s.value(t, "net/core/somaxconn"); got != "00" {
			t.Errorf("%s: the others are %q", key, got)
		}
	}
}

// What was set can be set back.
func TestSysctlsAreSetBack(t *testing.T) {
	s, _ := fakeSysctls(t)
	undo, err := s.set(map[string]string{"net.ipv4.ip_forward": "1"}, "net/")
	if err != nil || s.value(t, "net/ipv4/ip_forward") != "1" {
		t.Fatal(err)
	}
	if err := undo(); err != nil || s.value(t, "net/ipv4/ip_forward") != "0" {
		t.Errorf("%q, %v", s.value(t, "net/ipv4/ip_forward"), err)
	}
	s.load = nil
	if _, err := s.set(map[string]string{"net.netfilter.nf_conntrack_max": "1"}, "net/"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without modules: %v", err)
	}
}
