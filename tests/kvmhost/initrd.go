package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/katabox/katabox/tests/kvmhost/wire"
)

// writeInitrd packs the init, the first modules and the setup, in which it
// lists the modules' paths.
func writeInitrd(path, init string, moduleFiles []string, setup wire.Setup) error {
	program, err := os.ReadFile(init)
	if err != nil {
		return fmt.Errorf("make initramfs: %w", err)
	}
	records := []cpio.Record{
		cpio.StaticFile("init", string(program), 0o755),
		cpio.Directory("dev", 0o755),
		// The kernel opens the console for init before anything is mounted.
		cpio.CharDev("dev/console", 0o600, 5, 1),
		cpio.Directory("modules", 0o755),
	}
	for _, file := range moduleFiles {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("make initramfs: %w", err)
		}
		name := filepath.Join("modules", filepath.Base(file))
		records = append(records, cpio.StaticFile(name, string(data), 0o644))
		setup.Modules = append(setup.Modules, "/"+name)
	}
	text, err := json.Marshal(setup)
	if err != nil {
		return fmt.Errorf("make initramfs: %w", err)
	}
	records = append(records, cpio.StaticFile(wire.SetupName, string(text), 0o644))
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make initramfs: %w", err)
	}
	w := cpio.Newc.Writer(f)
	err = cpio.WriteRecords(w, records)
	if err == nil {
		err = cpio.WriteTrailer(w)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("make initramfs: %w", err)
	}
	return nil
}
