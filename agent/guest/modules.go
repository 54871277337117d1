package guest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// modulesFile lists the kernel modules of the image, made by guest-image.
// Each line is "boot NAME PATH" or "demand NAME PATH"; lines are in load
// order, so what a module needs stands before it.
const modulesFile = "/etc/katabox/modules"

type module struct {
	name, path string
	boot       bool
}

// Modules are the kernel modules that the image offers.
type Modules struct {
	list []module
	load func(path, params string) error
	// depends names the modules that the one at path needs directly.
	depends func(path string) ([]string, error)

	mu     sync.Mutex
	loaded map[string]bool // by path
}

// ReadModules reads a list of modules. A missing file is an empty list: every
// driver may be built in.
func ReadModules(path string) (*Modules, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return newModules(nil), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read module list: %w", err)
	}
	defer f.Close()
	list, err := parseModules(f)
	if err != nil {
		return nil, fmt.Errorf("read module list: %w", err)
	}
	return newModules(list), nil
}

func newModules(list []module) *Modules {
	return &Modules{list: list, load: finitModule, depends: moduleDepends, loaded: map[string]bool{}}
}

func parseModules(r io.Reader) ([]module, error) {
	var list []module
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 3 || (fields[0] != "boot" && fields[0] != "demand") {
			return nil, fmt.Errorf("line %d: want \"boot|demand NAME PATH\"", n)
		}
		list = append(list, module{name: fields[1], path: fields[2], boot: fields[0] == "boot"})
	}
	return list, lines.Err()
}

// LoadBoot loads the modules that every pod needs, in order.
func (m *Modules) LoadBoot() error {
	for _, mod := range m.list {
		if !mod.boot {
			continue
		}
		if err := m.loadOnce(mod, ""); err != nil {
			return err
		}
	}
	return nil
}

// Demand loads one module given as "NAME" or "NAME key=value ...", and those
// it needs. A name the image does not list must be built into the kernel (it
// then has /sys/module/NAME); otherwise the error says that it is missing.
func (m *Modules) Demand(request string) error {
	name, params, _ := strings.Cut(strings.TrimSpace(request), " ")
	last := m.find(name)
	if last < 0 {
		return builtIn(name)
	}
	wanted, err := m.needs(last)
	if err != nil {
		return fmt.Errorf("load module %s: %w", name, err)
	}
	for i, mod := range m.list[:last] {
		if !wanted[i] {
			continue
		}
		if err := m.loadOnce(mod, ""); err != nil {
			return err
		}
	}
	return m.loadOnce(m.list[last], params)
}

// needs returns the places in the list of all that the module at place last
// needs. What is not listed is built into the kernel.
func (m *Modules) needs(last int) (map[int]bool, error) {
	wanted := map[int]bool{last: true}
	for i := last; i >= 0; i-- { // Needs stand before the needy.
		if !wanted[i] {
			continue
		}
		names, err := m.depends(m.list[i].path)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if at := m.find(name); at >= 0 && at < i {
				wanted[at] = true
			}
		}
	}
	return wanted, nil
}

func (m *Modules) find(name string) int {
	return slices.IndexFunc(m.list, func(mod module) bool { return sameModule(mod.name, name) })
}

func (m *Modules) loadOnce(mod module, params string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loaded[mod.path] {
		return nil
	}
	if err := m.load(mod.path, params); err != nil {
		return fmt.Errorf("load module %s: %w", mod.name, err)
	}
	m.loaded[mod.path] = true
	return nil
}

// sameModule compares names as the kernel does: '-' and '_' are one.
func sameModule(a, b string) bool {
	return strings.ReplaceAll(a, "-", "_") == strings.ReplaceAll(b, "-", "_")
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

func finitModule(path, params string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.FinitModule(int(f.Fd()), params, 0)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// moduleDepends reads the "depends=a,b" string of a module file, which is
// NUL-terminated in its section .modinfo (scripts/mod/modpost.c).
func moduleDepends(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseDepends(data), nil
}

func parseDepends(data []byte) []string {
	_, rest, found := bytes.Cut(data, []byte("\x00depends="))
	if !found {
		return nil
	}
	value, _, _ := bytes.Cut(rest, []byte{0})
	if len(value) == 0 {
		return nil
	}
	return strings.Split(string(value), ",")
}
