package guesttest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"

	"github.com/katabox/katabox/agent/api"
)

// A container's devices can be opened, and their modules are loaded no sooner. Debian's
// kernels for clouds have no module for some.
func TestGuestDevicesLoadWhenOpened(t *testing.T) {
	m := guestOnly(t)
	devices := []*api.Device{}
	script := ""
	for _, name := range []string{"net/tun", "cuse", "uinput", "fuse", "loop-control", "uhid", "ppp"} {
		path := "/dev/" + name
		devices = append(devices, &api.Device{Path: path, Driver: "char", Source: name, Mode: 0o600, Access: "rwm", Optional: true})
		script += fmt.Sprintf("if [ ! -e %[1]s ]; then echo no %[1]s; else (: <>%[1]s) && echo opened %[1]s; fi\n", path)
	}
	before := loadedModules(t)
	spec, err := json.Marshal(shell(script))
	if err != nil {
		t.Fatal(err)
	}
	config := &api.ContainerConfig{Spec: spec, Devices: devices}
	began := time.Now()
	if _, err := m.task.Create(t.Context(), &taskapi.CreateTaskRequest{ID: "opener", Stdout: "y", Stderr: "y", Options: packedConfig(t, config)}); err != nil {
		t.Fatal(err)
	}
	t.Log("created in", time.Since(began))
	if after := loadedModules(t); after != before {
		t.Errorf("modules after the creation: %s, before: %s", after, before)
	}
	r := m.finish(t, "opener", "")
	for _, d := range devices {
		lacking := slices.Contains([]string{"uinput", "uhid", "ppp"}, d.GetSource()) && strings.Contains(r.out, "no "+d.GetPath()+"\n")
		if !lacking && !strings.Contains(r.out, "opened "+d.GetPath()+"\n") {
			t.Errorf("%s was not opened: %s%s", d.GetPath(), r.out, r.errs)
		}
	}
	for _, module := range []string{"tun", "cuse", "loop"} {
		if found, _ := filepath.Glob("/sys/module/" + module); len(found) != 1 {
			t.Errorf("module %s is not loaded", module)
		}
	}
}

func loadedModules(t *testing.T) string {
	t.Helper()
	list, err := filepath.Glob("/sys/module/*")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, " ")
}
