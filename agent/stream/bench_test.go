package stream

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// BenchmarkInput sends blocks to another process, which counts what it reads. On one
// CPU, as in a small guest: taskset -c 1 go test -run '^$' -bench Input ./agent/stream.
func BenchmarkInput(b *testing.B) {
	s := newStdio(b, Request{Stdin: true})
	host := attach(b, s, stdin)
	var counted strings.Builder
	process := exec.CommandContext(b.Context(), "wc", "-c")
	process.Stdin, process.Stdout = s.Child().Stdin, &counted
	if err := process.Start(); err != nil {
		b.Fatal(err)
	}
	block := make([]byte, inputBlock)
	sent := 0
	b.SetBytes(inputBlock)
	for b.Loop() {
		n, err := host.Write(block)
		if err != nil {
			b.Fatal(err)
		}
		sent += n
	}
	_ = host.CloseWrite()
	if err := process.Wait(); err != nil {
		b.Error(err)
	}
	if got := strings.TrimSpace(counted.String()); got != fmt.Sprint(sent) {
		b.Errorf("the process read %s bytes of %d", got, sent)
	}
}
