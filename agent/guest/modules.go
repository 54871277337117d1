package guest

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/katabox/katabox/agent/modules"
)

// Modules are the kernel modules that the image offers.
type Modules struct {
	list modules.List
	load modules.Loader

	mu     sync.Mutex
	loaded map[string]bool // by path
}

// ReadModules reads a list of modules. A missing file is an empty list: every
// driver may be built in.
func ReadModules(path string) (*Modules, error) {
	list, err := modules.ReadList(path)
	if err != nil {
		return nil, err
	}
	return newModules(list), nil
}

func newModules(list modules.List) *Modules {
	return &Modules{list: list, load: modules.LoadFile, loaded: map[string]bool{}}
}

// LoadBoot loads the modules that every pod needs, in order.
func (m *Modules) LoadBoot() error {
	for _, mod := range m.list {
		if mod.When != modules.Boot {
			continue
		}
		if err := m.loadOnce(mod.Path, ""); err != nil {
			return fmt.Errorf("load module %s: %w", mod.Name, err)
		}
	}
	return nil
}

// Demand loads one module given as "NAME" or "NAME key=value ...", and those
// it needs. A name that the image does not list must be built into the kernel
// with parameters (so that /sys/module/NAME exists); otherwise the error says
// that it is missing.
func (m *Modules) Demand(request string) error {
	name, params, _ := strings.Cut(strings.TrimSpace(request), " ")
	place := m.list.Find(name)
	if place < 0 {
		return builtIn(name)
	}
	if m.list[place].When == modules.Builtin {
		return nil
	}
	return m.list.Load(place, params, m.loadOnce)
}

// loadOnce skips what this process has already loaded.
func (m *Modules) loadOnce(path, params string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loaded[path] {
		return nil
	}
	if err := m.load(path, params); err != nil {
		return err
	}
	m.loaded[path] = true
	return nil
}

func builtIn(name string) error {
	if name == "" || strings.ContainsAny(name, "/.") {
		return fmt.Errorf("load module %q: not a module name", name)
	}
	if _, err := os.Stat("/sys/module/" + strings.ReplaceAll(name, "-", "_")); err != nil {
		return fmt.Errorf("load module %s: neither in the guest image nor built into its kernel", name)
	}
	return nil
}
