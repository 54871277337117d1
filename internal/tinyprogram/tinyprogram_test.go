package tinyprogram

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Linux runs the program, which finds its data, and nothing of it can be written.
func TestBuild(t *testing.T) {
	const first, second = "one ", "two"
	file := Build(func(a *Assembler) {
		for _, text := range []string{first, second} {
			a.Call(unix.SYS_WRITE, 1, a.Word([]byte(text)), uint32(len(text)))
		}
		a.Emit(0xe9, 0, 0, 0, 0) // jmp
		after := a.Len()
		a.Exit(1)
		a.PutOffset(after, a.Len())
		a.Exit(42)
	})
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, file, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path).Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 42 || string(out) != first+second {
		t.Errorf("it wrote %q, %v", out, err)
	}
	parsed, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if len(parsed.Progs) != 1 || parsed.Progs[0].Flags&elf.PF_W != 0 {
		t.Errorf("segments %+v", parsed.Progs)
	}
}
