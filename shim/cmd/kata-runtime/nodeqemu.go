package main

import (
	"fmt"

	"github.com/katabox/katabox/hypervisor/release"
	"github.com/katabox/katabox/installer"
	"github.com/katabox/katabox/virtcontainers/config"
)

// nodeQEMU is what "kata-runtime check" requires of a configuration and of QEMU, for
// the installer.
var nodeQEMU = installer.Hypervisor{
	Program: func(file string) (string, error) {
		cfg, err := config.Load(file)
		if err != nil {
			return "", err
		}
		return cfg.Hypervisor.Path, nil
	},
	Check: func(printed string) error {
		words := versionPattern.FindString(firstLine(printed))
		if v, known := release.Parse(words); known && v.Before(leastQEMU) {
			return fmt.Errorf("it is version %s, and at least %v is needed", words, leastQEMU)
		}
		return nil
	},
}
