package manager

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// owner returns the owner of the caller's pods.
func (p *Params) owner() persist.Owner {
	return persist.Owner{Address: p.GRPCAddress, Namespace: p.Namespace}
}

// recordOwner returns the owner in the record of the caller's sandbox. It is the
// caller, unless the sandbox's bundle names the shim of another record: that of
// an older shim, which wrote no owner, or of this engine before its socket moved.
func recordOwner(p *Params, platform virtcontainers.Platform, sandboxID string) (persist.Owner, error) {
	own := p.owner()
	found, err := persist.Find(platform.StateDir(), sandboxID)
	if err != nil {
		return own, fmt.Errorf("find record: %w", err)
	}
	shim := sandboxShim(p, sandboxID)
	other := own
	for _, rec := range found {
		if rec.Owner == own {
			return own, nil
		}
		moved := rec.Owner == persist.Owner{} || rec.Owner.Namespace == own.Namespace
		if moved && shim != 0 && rec.Shim.PID == shim {
			other = rec.Owner
		}
	}
	return other, nil
}

// sandboxShim reads the pid that start wrote into the sandbox's bundle. It
// returns 0 if there is none.
func sandboxShim(p *Params, sandboxID string) int {
	dir := p.Bundle
	if sandboxID != p.ID {
		var err error
		if dir, err = sandboxBundle(p, sandboxID); err != nil {
			return 0
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, bundle.PIDFile))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return pid
}
