package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// readAgent reads the agent and checks that a guest without libraries can
// run it.
func readAgent(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("find the agent: %w: build it with `make agent`, or name one with -agent", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the agent: %w", err)
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read agent %s: %w", path, err)
	}
	defer f.Close()
	if f.Machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("read agent %s: built for %v, the guest is x86-64", path, f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("read agent %s: it is linked dynamically and the guest has no libraries: link it with -extldflags -static", path)
		}
	}
	return data, nil
}
