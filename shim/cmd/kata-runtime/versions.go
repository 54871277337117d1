package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// versionPattern finds the version in the first line of "--version": QEMU prints
// "QEMU emulator version 7.2.22 (Debian ...)", its virtiofsd "virtiofsd version
// 7.2.22 (...)", the Rust virtiofsd "virtiofsd 1.13.0".
var versionPattern = regexp.MustCompile(`[0-9]+\.[0-9].*$`)

// programVersion runs a program and returns the version that it prints.
func (h host) programVersion(ctx context.Context, path string) (string, error) {
	out, err := h.output(ctx, path, "--version")
	if exit, ended := errors.AsType[*exec.ExitError](err); ended {
		return "", fmt.Errorf("%s --version: %w: %s", path, err, firstLine(string(exit.Stderr)))
	}
	if err != nil {
		return "", err
	}
	line := firstLine(out)
	if v := versionPattern.FindString(line); v != "" {
		return v, nil
	}
	return "unknown (" + strconv.Quote(line) + ")", nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}

// bannerPattern matches the beginning of linux_banner (init/version-timestamp.c),
// which is part of an uncompressed kernel.
var bannerPattern = regexp.MustCompile(`Linux version ([0-9][!-~]{0,127}) \(`)

// maxKernel bounds how much of a kernel is read, in bytes.
const maxKernel = 256 << 20

// guestKernel returns the release of an uncompressed kernel, or "" if it is
// unknown.
func (h host) guestKernel(path string) string {
	image, err := h.readAll(path, maxKernel)
	if err != nil {
		return ""
	}
	m := bannerPattern.FindSubmatch(image)
	if m == nil {
		return ""
	}
	return string(bytes.Clone(m[1]))
}
