package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// leakPatience is how long a pod's remains may take to disappear.
const leakPatience = 30 * time.Second

// PodsGone waits until the private host, on which only the tests and the engine
// run, has no Katabox shim and no machine, and the runtime's directories are
// empty.
func PodsGone(ctx context.Context) error {
	return UntilNone(ctx, func() ([]string, error) {
		found, err := vmProcesses()
		if err != nil {
			return nil, err
		}
		files, err := filepath.Glob("/run/kata-containers/*/*")
		return append(found, files...), err
	})
}

// vmProcesses lists the processes that serve pods of Katabox.
func vmProcesses() ([]string, error) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		words := strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		isKata := strings.Contains(words, "containerd-shim-kata-v2") || strings.HasPrefix(string(comm), "qemu-system")
		isKeeper := strings.Contains(words, "containerd-shim-kata-v2 keep-template ") // stays as long as its template
		if isKata && !isKeeper && words != "" {                                       // a zombie has none
			found = append(found, filepath.Dir(name)+" "+words)
		}
	}
	return found, nil
}

// UntilNone waits up to half a minute until find finds nothing; the error lists
// what is left.
func UntilNone(ctx context.Context, find func() ([]string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, leakPatience)
	defer cancel()
	for {
		found, err := find()
		if err != nil || len(found) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("left behind:\n  %s", strings.Join(found, "\n  "))
		case <-time.After(200 * time.Millisecond):
		}
	}
}
