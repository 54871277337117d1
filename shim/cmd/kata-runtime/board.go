package main

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"

	"github.com/katabox/katabox/virtcontainers/config"
)

// checkNamed checks what the configuration names and most do not: QEMU's board, its
// seccomp filter, firmware, and mounts for all pods.
func (h host) checkNamed(ctx context.Context, cfg *config.Config) []result {
	results := h.checkOptions(ctx, cfg)
	if cfg.Hypervisor.Firmware != "" {
		r := h.checkFile("firmware", cfg.Hypervisor.Firmware, "firmware")
		if r.Status != ok {
			r.Do = "install it (Debian: ovmf), or correct hypervisor.qemu.firmware"
		}
		results = append(results, r)
	}
	return append(results, h.checkBinds(cfg)...)
}

// checkOptions asks QEMU whether it knows what the configuration requests.
func (h host) checkOptions(ctx context.Context, cfg *config.Config) []result {
	return slices.Concat(h.checkAccelOfQEMU(ctx, cfg), h.checkBoard(ctx, cfg), h.checkDevices(ctx, cfg), h.checkSeccomp(ctx, cfg))
}

// checkBoard searches the machine type in QEMU's list. It returns nothing if QEMU
// does not print one; checkQEMU has the reason.
func (h host) checkBoard(ctx context.Context, cfg *config.Config) []result {
	list, err := h.output(ctx, cfg.Hypervisor.Path, "-machine", "help")
	if err != nil || !strings.Contains(list, "\n") {
		return nil
	}
	board := cfg.Hypervisor.MachineType
	r := result{Name: "machine type", Status: ok, Found: board}
	if !slices.ContainsFunc(strings.Split(list, "\n"), func(line string) bool {
		name, _, _ := strings.Cut(line, " ")
		return name == board
	}) {
		r.Status, r.Found, r.Means = missing, cfg.Hypervisor.Path+" has no "+board, "no machine can be started"
		r.Do = "correct hypervisor.qemu.machine_type: " + cfg.Hypervisor.Path + " -machine help lists them"
	}
	return []result{r}
}

// checkSeccomp has QEMU parse the filter. A board with an option that it does not
// have makes QEMU end in any case, after that (system/vl.c, qemu_init).
func (h host) checkSeccomp(ctx context.Context, cfg *config.Config) []result {
	filter := cfg.Hypervisor.Seccomp
	_, err := h.output(ctx, cfg.Hypervisor.Path, "-display", "none", "-sandbox", filter, "-machine", "none,katabox=check")
	exit, ended := errors.AsType[*exec.ExitError](err)
	if !ended {
		return nil
	}
	r := result{Name: "seccomp", Status: ok, Found: filter}
	for line := range strings.Lines(string(exit.Stderr)) {
		if _, said, found := strings.Cut(line, "-sandbox "); found {
			r.Status, r.Found, r.Means = missing, "-sandbox "+strings.TrimSpace(said), "no machine can be started"
			r.Do = `correct hypervisor.qemu.seccompsandbox, or set it to "off"`
			break
		}
	}
	return []result{r}
}

func (h host) checkBinds(cfg *config.Config) []result {
	var results []result
	for _, bind := range cfg.Runtime.SandboxBindMounts {
		path := strings.TrimSuffix(strings.TrimSuffix(bind, ":rw"), ":ro")
		r := result{Name: "sandbox mount", Status: ok, Found: path}
		if _, err := h.stat(path); err != nil {
			r.Status, r.Found, r.Means = missing, err.Error(), "no pod starts: each has this mount"
			r.Do = "make it, or remove it from runtime.sandbox_bind_mounts"
		}
		results = append(results, r)
	}
	return results
}
