package guest

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/agent/modules"
)

const moduleList = `# comment
boot virtio /m/virtio.ko -
boot virtio_pci /m/virtio_pci.ko virtio

demand failover /m/failover.ko -
demand net_failover /m/net_failover.ko failover
demand libcrc32c /m/libcrc32c.ko -
demand virtio_net /m/virtio_net.ko net_failover,virtio
demand erofs /m/erofs.ko libcrc32c fs-erofs
kernel bridge /m/modules.zip/bridge.ko - rtnl-link-bridge
builtin in_the_kernel - -
`

func testModules(t *testing.T) (*Modules, *[]string) {
	t.Helper()
	list, err := modules.ParseList(strings.NewReader(moduleList))
	if err != nil {
		t.Fatal(err)
	}
	m := newModules(list)
	var calls []string
	m.load = func(path, params string) error {
		calls = append(calls, strings.TrimSpace(path+" "+params))
		return nil
	}
	return m, &calls
}

func TestModulesLoadInOrderAndOnce(t *testing.T) {
	m, calls := testModules(t)
	if err := m.LoadBoot(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"virtio-net csum=0", "virtio_net", "erofs", "failover", "bridge", "in-the-kernel"} {
		if err := m.Demand(name); err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"/m/virtio.ko", "/m/virtio_pci.ko",
		"/m/failover.ko", "/m/net_failover.ko", "/m/virtio_net.ko csum=0",
		"/m/libcrc32c.ko", "/m/erofs.ko", "/m/modules.zip/bridge.ko",
	}
	if diff := cmp.Diff(want, *calls); diff != "" {
		t.Error(diff)
	}
}

func TestDemandUnknownModule(t *testing.T) {
	m, _ := testModules(t)
	// The host asks by names, not by the kernel's aliases.
	for _, name := range []string{"", "../etc", "no_such_module_anywhere", "rtnl-link-bridge"} {
		if err := m.Demand(name); err == nil {
			t.Errorf("%q was loaded", name)
		}
	}
}

func TestFailedModuleCanBeTriedAgain(t *testing.T) {
	m := newModules(modules.List{{When: modules.Boot, Name: "m", Path: "/m.ko"}})
	tries := 0
	m.load = func(string, string) error {
		tries++
		if tries == 1 {
			return errors.New("no")
		}
		return nil
	}
	if err := m.LoadBoot(); err == nil || !strings.Contains(err.Error(), "load module m") {
		t.Errorf("first: %v", err)
	}
	if err := m.Demand("m"); err != nil || tries != 2 {
		t.Errorf("second: %v after %d tries", err, tries)
	}
}
