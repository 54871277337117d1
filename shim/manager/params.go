package manager

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/pool"
)

// The actions.
const (
	ActionStart  = "start"
	ActionDelete = "delete"
	// ActionFeatures is what CRI-O asks of every runtime, of any kind.
	ActionFeatures = "features"
	// ActionServe is for the daemon; start passes no action, as containerd's own
	// shims do.
	ActionServe = ""
)

// Params are a caller's parameters, from flags, environment and stdin.
type Params struct {
	Action    string
	ID        string
	Namespace string
	// Bundle is the bundle's directory: the working directory unless given.
	Bundle string
	// EventAddress is the engine's socket for events, or "".
	EventAddress string
	// GRPCAddress is the engine's own socket; two engines on one host have
	// different ones.
	GRPCAddress string
	// SocketDir is where the engine wants the shim's socket, or "".
	SocketDir     string
	Debug         bool
	Version, Info bool
	Dialect       Dialect
	// Pool is the directory of spare shims; the zero Pool has none.
	Pool           pool.Pool
	flagsForDaemon []string
	// configPath is the configuration file that the engine named, in the daemon with
	// start; or "".
	configPath string
	// launched is when the engine called this program; in the daemon, when it
	// called start. It may be zero.
	launched time.Time
	// schedCore is set if the pod is to have its own domain of core scheduling.
	schedCore bool
	// unusedAfter replaces unusedTimeout if it is not 0.
	unusedAfter time.Duration
}

// launchedEnv passes launched on to the daemon, in nanoseconds of Unix time.
const launchedEnv = "KATABOX_LAUNCHED"

// configEnv passes configPath on to the daemon.
const configEnv = "KATABOX_CONFIG_PATH"

// readLaunched reads when start was called. A time more than a minute ago is
// ignored: the clock was set, or the variable is another shim's.
func readLaunched(value string, now time.Time) time.Time {
	ns, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return time.Time{}
	}
	ago := now.Sub(time.Unix(0, ns))
	if ago < 0 || ago > time.Minute {
		return time.Time{}
	}
	return now.Add(-ago) // keeps the monotonic clock
}

// maxStdin bounds what an engine may send, in bytes.
const maxStdin = 10 << 20

// ParseArgs reads the command line and the environment.
func ParseArgs(args []string, getenv func(string) string) (*Params, error) {
	p := &Params{launched: time.Now()}
	flags := flag.NewFlagSet("containerd-shim-kata-v2", flag.ContinueOnError)
	flags.StringVar(&p.ID, "id", "", "id of the container")
	flags.StringVar(&p.Namespace, "namespace", "", "the engine's namespace")
	flags.StringVar(&p.Bundle, "bundle", "", "the bundle's directory, if it is not the working directory")
	flags.StringVar(&p.GRPCAddress, "address", "", "the engine's gRPC socket")
	flags.BoolVar(&p.Debug, "debug", false, "log more")
	flags.BoolVar(&p.Version, "v", false, "print the version and exit")
	flags.BoolVar(&p.Version, "version", false, "print the version and exit")
	flags.BoolVar(&p.Info, "info", false, "print the runtime's description and exit")
	ignored := flags.String("publish-binary", "", "not used: events go to TTRPC_ADDRESS")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 1 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(1))
	}
	p.Action = flags.Arg(0)
	p.EventAddress, p.schedCore = getenv("TTRPC_ADDRESS"), getenv(schedCoreEnv) != ""
	if p.Action == ActionServe {
		p.launched = readLaunched(getenv(launchedEnv), p.launched)
		p.configPath = getenv(configEnv)
	}
	// CRI-O starts shims with a library of containerd's, which sets the version,
	// and reads the bare address; it has no socket for events.
	if getenv("MAX_SHIM_VERSION") != "" && p.EventAddress != "" {
		p.Dialect = DialectJSON
	}
	p.flagsForDaemon = []string{"-namespace", p.Namespace, "-id", p.ID, "-address", p.GRPCAddress, "-publish-binary", *ignored}
	if p.Debug {
		p.flagsForDaemon = append(p.flagsForDaemon, "-debug")
	}
	if p.Version || p.Info || p.Action == ActionFeatures {
		return p, nil
	}
	return p, p.check()
}

func (p *Params) check() error {
	switch p.Action {
	case ActionStart, ActionDelete, ActionServe:
	default:
		return fmt.Errorf("unknown action %q, want start or delete", p.Action)
	}
	if p.Namespace == "" {
		return errors.New("-namespace is missing")
	}
	if err := bundle.CheckID(p.ID); err != nil {
		return fmt.Errorf("-id: %w", err)
	}
	if p.Bundle != "" {
		return nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find bundle: %w", err)
	}
	p.Bundle = dir
	return nil
}

// ReadStdin reads what an engine sends with start: bootstrap parameters
// (containerd 2.3 and later), runtime options (earlier ones, when they have
// any), or nothing.
func (p *Params) ReadStdin(r io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(r, maxStdin))
	if err != nil {
		return fmt.Errorf("read start parameters: %w", err)
	}
	var boot bootapi.BootstrapParams
	// Runtime options are an Any, whose first field is a type URL: never
	// the id.
	isBoot := len(data) > 0 && proto.Unmarshal(data, &boot) == nil && boot.InstanceID == p.ID
	if !isBoot {
		p.configPath = configPathOf(data)
		return nil
	}
	p.Dialect = DialectProto
	p.SocketDir = boot.GetSocketDir()
	var options runtimeoptions.Options
	if ok, err := boot.FindExtension(&options); ok && err == nil {
		p.configPath = options.ConfigPath
	}
	if boot.ContainerdTtrpcAddress != "" {
		p.EventAddress = boot.ContainerdTtrpcAddress
	}
	return nil
}

// configPathOf returns the configuration file in runtime options; "" if they name
// none, or are other data.
func configPathOf(data []byte) string {
	var of anypb.Any
	var options runtimeoptions.Options
	if proto.Unmarshal(data, &of) != nil || of.UnmarshalTo(&options) != nil {
		return ""
	}
	return options.ConfigPath
}
