package harness

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// CompileC compiles the text of a C source to a static program, which runs in
// any container. It needs gcc.
func CompileC(ctx context.Context, source, program string) error {
	cmd := exec.CommandContext(ctx, "gcc", "-static", "-O2", "-Wall", "-Werror", "-s", "-x", "c", "-o", program, "-")
	cmd.Stdin = strings.NewReader(source)
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w: %s", program, err, msg)
	}
	return nil
}
