package installer

import (
	"context"
	"fmt"
)

const crioDropIn = "/etc/crio/crio.conf.d/50-katabox.conf"

// crio is the engine CRI-O, which reads all files of its drop-in directory and
// merges them key by key.
type crio struct {
	node    node
	handler string
}

func (crio) name() string { return "crio" }

func (crio) serves() bool { return true }

func (c crio) plan(context.Context) (plan, error) {
	return plan{{crioDropIn, fmt.Appendf(nil, "[crio.runtime.runtimes.%s]\nruntime_path = %q\nruntime_type = \"vm\"\n"+
		"runtime_root = \"/run/vc\"\nprivileged_without_host_devices = true\n", c.handler, ShimPath)}}, nil
}

func (crio) unplan() (plan, error) { return plan{{crioDropIn, nil}}, nil }

// validate does nothing: CRI-O has no command that only checks a configuration.
func (crio) validate(context.Context, plan) (string, error) { return "", nil }
