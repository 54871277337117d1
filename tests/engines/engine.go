package engines

import (
	"context"
	"os/exec"
	"slices"

	"github.com/katabox/katabox/tests/harness"
)

// Engine is one container engine that runs on a private host. Its client has
// Docker's command line.
type Engine interface {
	// Name is "nerdctl", "docker-28", "docker-20.10" or "podman"; on Debian 13
	// "docker-26.1" and "podman-5.4".
	Name() string
	// Command returns the client with args, ready to run; what args make is
	// run by r.
	Command(ctx context.Context, r harness.Runtime, args ...string) *exec.Cmd
	// Lacks lists what the engine cannot do with any runtime.
	Lacks() []Feature
	// Crash kills the engine's daemon with SIGKILL and starts it again; it
	// returns when the client gets an answer.
	Crash(ctx context.Context) error
	// LogPath is the file with the engine's and its shims' log.
	LogPath() string
	// Stop ends the engine. Its containers must have been removed.
	Stop(ctx context.Context) error
}

// Feature is something that some engines lack.
type Feature string

// The features.
const (
	HealthChecks  Feature = "health checks"
	Compose       Feature = "compose"
	Pods          Feature = "pods"
	Daemon        Feature = "daemon" // which can end while containers run
	OOMReport     Feature = "out of memory in inspect"
	RestartPolicy Feature = "restart policies"
	EmptyInput    Feature = "empty input" // a client that ends it immediately
	StartInput    Feature = "start -i"
	TerminalSize  Feature = "terminal size" // set once the container runs
	Privileged    Feature = "privileged processes"
	Connect       Feature = "network connect"
	WholeLogs     Feature = "whole logs" // of a container that writes and ends
)

func has(e Engine, f Feature) bool { return !slices.Contains(e.Lacks(), f) }

// isMake reports whether the client's command makes a container, and so takes
// --runtime.
func isMake(args []string) bool {
	return len(args) > 0 && (args[0] == "run" || args[0] == "create")
}

// withFlags inserts flags after the client's first argument.
func withFlags(args []string, flags ...string) []string {
	return slices.Concat(args[:1], flags, args[1:])
}
