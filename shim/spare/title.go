package spare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"
)

// title is the memory in which this process's command line is, from where the
// kernel reads it for /proc/PID/cmdline. "delete" and operators recognise a
// pod's shim by it. (prctl(2), PR_SET_MM, could move it, but needs
// CAP_SYS_RESOURCE, which root has not in every container.)
type title []byte

// newTitle returns the memory of os.Args, which it replaces by a copy. The last
// argument only makes room (maker.StartSpare).
func newTitle() (title, error) {
	args := os.Args
	begin := unsafe.StringData(args[0])
	size := uintptr(0)
	for _, arg := range args {
		if uintptr(unsafe.Pointer(unsafe.StringData(arg))) != uintptr(unsafe.Pointer(begin))+size {
			return nil, errors.New("the arguments are not beside each other in memory")
		}
		size += uintptr(len(arg)) + 1
	}
	os.Args = nil
	for _, arg := range args[:len(args)-1] {
		os.Args = append(os.Args, strings.Clone(arg))
	}
	t := title(unsafe.Slice(begin, size))
	return t, t.set(slices.Clone(os.Args))
}

// set changes the command line.
func (t title) set(args []string) error {
	text := strings.Join(args, "\x00")
	if len(text) >= len(t) {
		return fmt.Errorf("the command line has %d bytes, want fewer than %d", len(text), len(t))
	}
	clear(t[copy(t, text):])
	return nil
}

// setComm changes the process's name to that of a program.
func setComm(program string) error {
	return os.WriteFile("/proc/self/comm", []byte(filepath.Base(program)), 0)
}
