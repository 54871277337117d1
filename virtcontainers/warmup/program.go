package warmup

import (
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/tinyprogram"
)

// Output is what the container's program writes.
const Output = "hello\n"

// program returns the container's program, which writes Output and ends. A large
// one would cost the guest memory, and each page of it a request to the host.
func program() []byte {
	return tinyprogram.Build(func(a *tinyprogram.Assembler) {
		a.Call(unix.SYS_WRITE, 1, a.Word([]byte(Output)), uint32(len(Output)))
		a.Exit(0)
	})
}
