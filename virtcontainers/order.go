package virtcontainers

import (
	"context"
	"os"
	"path/filepath"

	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
)

// TemplateOrder is the order for a process to make a template or a spare.
type TemplateOrder struct {
	// Config is the configuration file; empty for the built-in defaults.
	Config string
	// Key is the template that is wanted; empty for a spare.
	Key factory.Key
	// Engine is the address of the engine whose shim orders; for spares.
	Engine string
	// Lock is the right to make it. The caller owns the file; the process must
	// have its own duplicate before StartMaker returns.
	Lock *os.File
	// Home is the cgroups for the process: hostcgroup.Self's, from before this
	// process joined the pod's.
	Home []byte
}

// KeepOrder is the order for a process to keep a template's memory.
type KeepOrder struct {
	Store factory.Store
	Key   factory.Key
	// Sum is the template's, as factory.Lent has it.
	Sum uint32
	// Memory is the sealed memory. The caller owns the file; the process must have its own
	// duplicate before StartKeeper returns.
	Memory *os.File
	// Home is as in TemplateOrder.
	Home []byte
}

// StartMaker starts a process that makes a template (RunMaker). The process
// belongs to no pod and outlives this process. wait waits until it has ended,
// bounded by its context, and must be called once.
type StartMaker func(TemplateOrder) (wait func(context.Context) error, err error)

// sourceFile is the absolute path of the file that a configuration was read from;
// empty for none. It identifies the configuration to all processes of the host.
func sourceFile(cfg *config.Config) string {
	if len(cfg.Source) == 0 {
		return ""
	}
	path, err := filepath.Abs(cfg.Source[0])
	if err != nil { // the working directory was removed
		return cfg.Source[0]
	}
	return path
}
