package guest

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const moduleList = `# comment
boot virtio /m/virtio.ko
boot virtio_pci /m/virtio_pci.ko

demand failover /m/failover.ko
demand net_failover /m/net_failover.ko
demand libcrc32c /m/libcrc32c.ko
demand virtio_net /m/virtio_net.ko
demand erofs /m/erofs.ko
`

func testModules(t *testing.T) (*Modules, *[]string) {
	t.Helper()
	list, err := parseModules(strings.NewReader(moduleList))
	if err != nil {
		t.Fatal(err)
	}
	m := newModules(list)
	var calls []string
	m.load = func(path, params string) error {
		if path == "/m/broken.ko" {
			return errors.New("broken")
		}
		calls = append(calls, strings.TrimSpace(path+" "+params))
		return nil
	}
	m.depends = func(path string) ([]string, error) {
		return map[string][]string{
			"/m/virtio_net.ko":   {"net_failover", "virtio", "builtin"},
			"/m/net_failover.ko": {"failover"},
			"/m/erofs.ko":        {"libcrc32c"},
		}[path], nil
	}
	return m, &calls
}

func TestModulesLoadInOrderAndOnce(t *testing.T) {
	m, calls := testModules(t)
	if err := m.LoadBoot(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"virtio-net csum=0", "virtio_net", "erofs", "failover"} {
		if err := m.Demand(name); err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"/m/virtio.ko", "/m/virtio_pci.ko",
		"/m/failover.ko", "/m/net_failover.ko", "/m/virtio_net.ko csum=0",
		"/m/libcrc32c.ko", "/m/erofs.ko",
	}
	if diff := cmp.Diff(want, *calls); diff != "" {
		t.Error(diff)
	}
}

func TestDemandUnknownModule(t *testing.T) {
	m, _ := testModules(t)
	for _, name := range []string{"", "../etc", "no_such_module_anywhere"} {
		if err := m.Demand(name); err == nil {
			t.Errorf("%q was loaded", name)
		}
	}
}

func TestFailedModuleCanBeTriedAgain(t *testing.T) {
	m := newModules([]module{{name: "m", path: "/m.ko"}})
	m.depends = func(string) ([]string, error) { return nil, nil }
	tries := 0
	m.load = func(string, string) error {
		tries++
		if tries == 1 {
			return errors.New("no")
		}
		return nil
	}
	if err := m.Demand("m"); err == nil || !strings.Contains(err.Error(), "load module m") {
		t.Errorf("first: %v", err)
	}
	if err := m.Demand("m"); err != nil || tries != 2 {
		t.Errorf("second: %v after %d tries", err, tries)
	}
}

func TestParseModulesRefuses(t *testing.T) {
	for _, list := range []string{"boot", "boot a", "later a /a.ko", "boot a /a.ko x"} {
		if _, err := parseModules(strings.NewReader(list)); err == nil {
			t.Errorf("%q was read", list)
		}
	}
}

func TestParseDepends(t *testing.T) {
	tests := []struct {
		data string
		want []string
	}{
		{"\x00license=GPL\x00depends=a,b\x00name=c\x00", []string{"a", "b"}},
		{"\x00depends=\x00", nil},
		{"\x00depends=x", []string{"x"}},
		{"nothing", nil},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, parseDepends([]byte(test.data))); diff != "" {
			t.Errorf("%q: %s", test.data, diff)
		}
	}
}

func FuzzParseModules(f *testing.F) {
	f.Add(moduleList)
	f.Fuzz(func(_ *testing.T, list string) {
		_, _ = parseModules(strings.NewReader(list))
		parseDepends([]byte(list))
	})
}
