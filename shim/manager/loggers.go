package manager

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/katabox/katabox/shim/stdio"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// EndLoggers is the last step of a daemon, which ended with err. It ends the
// loggers, which have some time to write their input. The engine does not wait for
// that, and may create the same pod again meanwhile.
func EndLoggers(ctx context.Context, p *Params, err error) error {
	if !stdio.LoggersRun() {
		return err
	}
	if err == nil {
		leaveBundle(p)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stdio.LoggersEnd)
	defer cancel()
	return errors.Join(err, stdio.EndLoggers(ctx))
}

// leaveBundle takes the daemon's pid out of the bundle, unless another daemon's is
// there by now. A "shim delete" then neither waits for this one nor kills it.
func leaveBundle(p *Params) {
	file := filepath.Join(p.Bundle, bundle.PIDFile)
	if data, err := os.ReadFile(file); err == nil && string(data) == strconv.Itoa(os.Getpid()) {
		_ = os.Remove(file)
	}
}
