package chaos

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// progress is how far the shim has come with the file in a directory: of a
// checkpoint, or of a guest's memory. The file may have no name.
type progress struct {
	open bool
	// machines are the command lines of the VMMs, also of spares.
	machines []string
	// size is the file's size in bytes, and at the place in it that is read or
	// written next.
	size, at int64
}

// progressIn looks at the open files of the daemon's shims.
func progressIn(d *harness.Daemon, dir string) (now progress, err error) {
	procs, err := d.Processes()
	if err != nil {
		return now, err
	}
	for _, p := range procs {
		switch p.Kind() {
		case harness.KindVMM:
			now.machines = append(now.machines, p.Args)
		case harness.KindShim:
			if err := now.look(p.PID, dir); err != nil {
				return now, err
			}
		}
	}
	return now, nil
}

// hasMachine reports whether a sandbox has a VMM.
func (p progress) hasMachine(sandbox string) bool {
	return slices.ContainsFunc(p.machines, func(args string) bool { return strings.Contains(args, "sandbox-"+sandbox+",") })
}

// look looks at the open files of one process.
func (p *progress) look(pid int, dir string) error {
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return err
	}
	for _, fd := range fds {
		// What fails here has just ended, or was just closed.
		if target, _ := os.Readlink(fd); !strings.HasPrefix(target, dir+"/") {
			continue
		}
		if info, err := os.Stat(fd); err == nil && info.Mode().IsRegular() {
			p.open, p.size, p.at = true, info.Size(), position(pid, filepath.Base(fd))
		}
	}
	return nil
}

// position returns the place in a process's file (proc(5), fdinfo); 0 if that has
// been closed.
func position(pid int, fd string) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "pos:"); ok {
			at, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			return at
		}
	}
	return 0
}

// stage is a part of an operation at which the victim is struck.
type stage struct {
	name string
	// begun reports whether it has begun, by how far the file is.
	begun func(progress) bool
}

// at strikes at one of an operation's stages. Otherwise it is like during.
func (s *scene) at(ctx context.Context, dir string, stages []stage, operation func(context.Context) error) (answer, err error) {
	chosen := stages[s.random.IntN(len(stages))]
	await := func(answered <-chan struct{}) error {
		for {
			now, err := progressIn(s.d, dir)
			if err != nil || chosen.begun(now) {
				s.t.Logf("struck %s", chosen.name)
				return err
			}
			select {
			case <-answered:
				s.t.Logf("struck after the operation, not %s", chosen.name)
				return nil
			case <-time.After(time.Millisecond):
			}
		}
	}
	return s.when(ctx, await, operation)
}

// someBytes returns a number of bytes that a file with a guest's memory exceeds.
func (s *scene) someBytes() int64 { return 1 + s.random.Int64N(16<<20) }
