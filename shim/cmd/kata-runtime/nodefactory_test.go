package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/katabox/katabox/installer"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/pool"
)

// The templates and spares of a node whose root is mounted elsewhere are removed. Spares
// are not touched from another PID namespace.
func TestNodeFactory(t *testing.T) {
	f, _ := factoryHost(t)
	root := t.TempDir()
	on := installer.Node{Path: func(name string) (string, error) { return filepath.Join(root, name), nil }}
	templates := filepath.Join(root, "templates")
	if _, err := f.makeTemplate(t.Context(), &config.Config{Factory: config.Factory{TemplatePath: templates}}, func(string) {}); err != nil {
		t.Fatal(err)
	}
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
	defer l.Close()
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan error, 1)
	go func() { reaped <- child.Wait() }()
	becomeProcess(t, e.Dir(), child.Process.Pid)
	file := configure(t, "factory.template_path = '/templates'")

	ns := filepath.Join(root, "proc/1/ns")
	if err := errors.Join(os.MkdirAll(ns, 0o755), os.Symlink("pid:[1]", filepath.Join(ns, "pid"))); err != nil {
		t.Fatal(err)
	}
	if pids, err := nodeFactory.Spares(on); len(pids) != 0 || err != nil {
		t.Errorf("in another namespace: %v, %v", pids, err)
	}
	if err := nodeFactory.Destroy(file, on); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(templates); !os.IsNotExist(err) {
		t.Errorf("the templates: %v", err)
	}
	if list, err := spares.List(); len(list) != 1 || err != nil {
		t.Errorf("spares from another namespace: %v, %v", list, err)
	}

	own, err := os.Readlink("/proc/self/ns/pid")
	if err := errors.Join(err, os.Remove(filepath.Join(ns, "pid")), os.Symlink(own, filepath.Join(ns, "pid"))); err != nil {
		t.Fatal(err)
	}
	if pids, err := nodeFactory.Spares(on); !slices.Equal(pids, []int{child.Process.Pid}) || err != nil {
		t.Errorf("spares %v, %v", pids, err)
	}
	if err := nodeFactory.Destroy(file, on); err != nil {
		t.Error(err)
	}
	if err := <-reaped; err == nil {
		t.Error("the spare ended by itself")
	}
	if _, err := os.Stat(spares.Dir); !os.IsNotExist(err) {
		t.Errorf("the directory of spares: %v", err)
	}
}
