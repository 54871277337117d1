package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/katabox/katabox/virtcontainers/config"
)

// shimName is fixed by containerd's rule for io.containerd.kata.v2.
const shimName = "containerd-shim-kata-v2"

func (h host) checkUser() result {
	r := result{Name: "user", Status: ok, Found: "root"}
	if h.uid != 0 {
		r.Status, r.Found = warning, fmt.Sprintf("user %d", h.uid)
		r.Means = "the shim runs as root: it may find what this user does not"
		r.Do = "run kata-runtime check as root"
	}
	return r
}

// checkConfig loads the configuration. It returns nil if the configuration cannot
// be used.
func (h host) checkConfig(path string) (*config.Config, result) {
	cfg, err := h.loadConfig(path)
	if err != nil {
		return nil, result{Name: "configuration", Status: missing, Found: oneLine(err.Error()),
			Means: "no pod starts until it is corrected; QEMU, virtiofsd and the guest were not checked",
			Do:    "correct what is named above; docs/configuration.md has all keys"}
	}
	r := result{Name: "configuration", Status: ok, Found: "built-in defaults"}
	if len(cfg.Source) > 0 {
		r.Found = strings.Join(cfg.Source, ", ")
	}
	if len(cfg.Source) > 0 && len(cfg.Warnings) > 0 {
		r.Status, r.Means = warning, strings.Join(cfg.Warnings, "; ")
		r.Do = "remove what has no effect; docs/configuration.md has all keys"
	}
	return cfg, r
}

// checkShim searches for the shim where containerd does: in PATH, here the PATH
// of this program.
func (h host) checkShim() result {
	r := result{Name: "shim", Status: ok}
	path, err := h.lookPath(shimName)
	if err == nil {
		r.Found = path
		return r
	}
	beside := filepath.Join(filepath.Dir(h.executable), shimName)
	if _, err := h.stat(beside); err == nil && h.executable != "" {
		r.Status, r.Found = warning, beside+", which is not in this PATH"
		r.Means = "containerd and iSulad look for it in the PATH that they were started with"
		r.Do = "make install, or start the engine with " + filepath.Dir(beside) + " in its PATH"
		return r
	}
	r.Status, r.Found = missing, shimName+" is not in PATH"
	r.Means = "containerd and iSulad cannot start io.containerd.kata.v2"
	r.Do = "make install"
	return r
}

// oneLine joins the lines of an error that lists several.
func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }
