package config

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
)

// FuzzParseAndBuild feeds any bytes as a file: the answer is an error or a
// Config whose promises hold.
func FuzzParseAndBuild(f *testing.F) {
	for _, name := range []string{"testdata/kata.toml", shippedFile} {
		doc, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(doc, 4)
	}
	f.Add([]byte("agent = {kata = {dial_timeout = 9}}\n[[runtime]]\n['a.b'.\"c\\u0000\"]\nd.e.f.g.h=1979-05-27"), 0)
	f.Add([]byte("[hypervisor.qemu]\ndefault_vcpus=-1e308\ndefault_maxvcpus=4294967295\ncpu_features=',, ,'"), 1000)
	f.Fuzz(func(t *testing.T, doc []byte, cpus int) {
		settings, err := parse("f.toml", 0, doc)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.toml:") {
				t.Errorf("error without the file: %v", err)
			}
			return
		}
		for _, s := range settings {
			if s.origin.Line < 1 || s.origin.Line > 1+strings.Count(string(doc), "\n") {
				t.Errorf("%s is in line %d", s.name, s.origin.Line)
			}
		}
		config, err := build(settings, cpus)
		if err == nil {
			checkPromises(t, config, cpus)
		}
	})
}

// checkPromises checks what the documentation of Config says.
func checkPromises(t *testing.T, c *Config, cpus int) {
	t.Helper()
	h := c.Hypervisor
	for _, path := range []string{h.Path, h.Kernel, h.Initrd, cmp.Or(h.VirtioFS.Daemon, "/")} {
		if !filepath.IsAbs(path) {
			t.Errorf("path %q", path)
		}
	}
	if h.VCPUs < 1 || h.VCPUs > h.MaxVCPUs || int(h.MaxVCPUs) > max(cpus, 1) {
		t.Errorf("%d of %d vCPUs on a host with %d", h.VCPUs, h.MaxVCPUs, cpus)
	}
	if h.MemoryMiB < 256 || h.MemoryMiB<<20>>20 != h.MemoryMiB {
		t.Errorf("memory %d", h.MemoryMiB)
	}
	if h.FirstUID < 1 || h.UIDs < 1 || uint64(h.FirstUID)+uint64(h.UIDs)-1 > maxUID || h.Seccomp == "" {
		t.Errorf("%d user ids from %d on, filter %q", h.UIDs, h.FirstUID, h.Seccomp)
	}
	if q := h.VirtioFS.QueueSize; q == 0 || q > 1024 || q&(q-1) != 0 {
		t.Errorf("queue size %d", q)
	}
	if h.SharedFS != SharedFSVirtioFS && h.SharedFS != SharedFSNone || h.MachineType == "" ||
		!slices.Contains([]CacheMode{CacheNever, CacheMetadata, CacheAuto, CacheAlways}, h.VirtioFS.Cache) {
		t.Errorf("words %q, %q, %q", h.SharedFS, h.MachineType, h.VirtioFS.Cache)
	}
	if c.Agent.DialTimeout < time.Second || c.Runtime.CreateContainerTimeout < time.Second {
		t.Errorf("timeouts %v, %v", c.Agent.DialTimeout, c.Runtime.CreateContainerTimeout)
	}
	words := append([]string{h.MachineAccelerators, h.CPUFeatures, h.KernelParams, h.Seccomp}, c.Warnings...)
	words = slices.Concat(words, h.VirtioFS.ExtraArgs, c.Agent.KernelModules)
	for _, word := range words {
		if strings.ContainsFunc(word, unicode.IsControl) {
			t.Errorf("control character in %q", word)
		}
	}
}
