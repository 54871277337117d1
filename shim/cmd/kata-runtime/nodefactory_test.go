package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/katabox/katabox/installer"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/pool"
)

// The templates and spares of a node whose root is mounted elsewhere are removed. Spares
// are not touched from another PID namespace.
func TestNodeFactory(t *testing.T) {
	f, _ := factoryHost(t)
	root, on := factoryNode(t)
	templates := filepath.Join(root, "templates")
	if _, err := f.makeTemplate(t.Context(), &config.Config{Factory: config.Factory{TemplatePath: templates}}, func(string) {}); err != nil {
		t.Fatal(err)
	}
	spares, pid, ended := nodeSpare(t, on)
	file := configure(t, "factory.template_path = '/templates'")

	setPIDs(t, root, "pid:[1]")
	if pids, err := nodeFactory.Spares(file, on); len(pids) != 0 || err != nil {
		t.Errorf("in another namespace: %v, %v", pids, err)
	}
	if notice, err := nodeFactory.Destroy(file, on); notice != "" || err != nil {
		t.Errorf("%q, %v", notice, err)
	}
	if _, err := os.Stat(templates); !os.IsNotExist(err) {
		t.Errorf("the templates: %v", err)
	}
	if list, err := spares.List(); len(list) != 1 || err != nil {
		t.Errorf("spares from another namespace: %v, %v", list, err)
	}

	setPIDs(t, root, ownPIDs(t))
	if pids, err := nodeFactory.Spares(file, on); !slices.Equal(pids, []int{pid}) || err != nil {
		t.Errorf("spares %v, %v", pids, err)
	}
	if notice, err := nodeFactory.Destroy(file, on); notice != "" || err != nil {
		t.Errorf("%q, %v", notice, err)
	}
	if err := <-ended; err == nil {
		t.Error("the spare ended by itself")
	}
	if _, err := os.Stat(spares.Dir); !os.IsNotExist(err) {
		t.Errorf("the directory of spares: %v", err)
	}
}

// Spares are ended whatever the configuration says of templates, and what stays is said.
func TestNodeFactoryWithoutTemplates(t *testing.T) {
	for name, test := range map[string]struct{ config, notice string }{
		"invalid": {"factory.template_path = 7", "template_path"},
		"refused": {"factory.template_path = '/shared'", "such as other"},
	} {
		t.Run(name, func(t *testing.T) {
			root, on := factoryNode(t)
			setPIDs(t, root, ownPIDs(t))
			other := filepath.Join(root, "shared/other")
			if err := errors.Join(os.Mkdir(filepath.Dir(other), 0o755), os.WriteFile(other, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			spares, pid, ended := nodeSpare(t, on)
			file := configure(t, test.config)
			if pids, err := nodeFactory.Spares(file, on); !slices.Equal(pids, []int{pid}) || err != nil {
				t.Errorf("spares %v, %v", pids, err)
			}
			notice, err := nodeFactory.Destroy(file, on)
			if err != nil || !strings.Contains(notice, test.notice) {
				t.Errorf("%q, %v; want %q in the notice", notice, err, test.notice)
			}
			if list, err := spares.List(); len(list) != 0 || err != nil {
				t.Fatalf("spares %v, %v", list, err)
			}
			if err := <-ended; err == nil {
				t.Error("the spare ended by itself")
			}
			if _, err := os.Stat(other); err != nil {
				t.Error(err)
			}
		})
	}
}

// A process that makes a template is ended with the spares; from another PID namespace it
// cannot be, and the error says what is needed.
func TestNodeMaker(t *testing.T) {
	root, on := factoryNode(t)
	store := factory.Store{Dir: filepath.Join(root, "templates")}
	file := configure(t, "factory.template_path = '/templates'")
	lock, err := store.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := lock.Sign(); err != nil {
		t.Fatal(err)
	}
	setPIDs(t, root, ownPIDs(t))
	if pids, err := nodeFactory.Spares(file, on); !slices.Equal(pids, []int{os.Getpid()}) || err != nil {
		t.Errorf("processes %v, %v", pids, err)
	}
	setPIDs(t, root, "pid:[1]")
	if pids, err := nodeFactory.Spares(file, on); err == nil || !strings.Contains(err.Error(), "hostPID") {
		t.Errorf("processes of another namespace: %v, %v", pids, err)
	}
	if _, err := nodeFactory.Destroy(file, on); err == nil || !strings.Contains(err.Error(), "hostPID") {
		t.Errorf("destroy from another namespace: %v", err)
	}
}

// factoryNode is a node whose root is a directory of the test.
func factoryNode(t *testing.T) (root string, on installer.Node) {
	t.Helper()
	root = t.TempDir()
	return root, installer.Node{Path: func(name string) (string, error) { return filepath.Join(root, name), nil }}
}

// nodeSpare adds a spare with a process to the node. The error of its end is not nil if
// it was ended.
func nodeSpare(t *testing.T, on installer.Node) (spares pool.Pool, pid int, ended <-chan error) {
	t.Helper()
	spares, err := nodePool(on)
	if err != nil {
		t.Fatal(err)
	}
	e, err := spares.Add("mine", pool.Info{Name: "n", Store: "/templates"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := e.Offer()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan error, 1)
	go func() { reaped <- child.Wait() }()
	t.Cleanup(func() { _ = l.Close() })
	becomeProcess(t, e.Dir(), child.Process.Pid)
	return spares, child.Process.Pid, reaped
}

// setPIDs sets the node's PID namespace.
func setPIDs(t *testing.T, root, namespace string) {
	t.Helper()
	link := filepath.Join(root, "proc/1/ns/pid")
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.RemoveAll(link), os.Symlink(namespace, link)); err != nil {
		t.Fatal(err)
	}
}

// ownPIDs is this process's PID namespace.
func ownPIDs(t *testing.T) string {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	return own
}
