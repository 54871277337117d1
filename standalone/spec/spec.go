package spec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// cgroupParent is the cgroup below which containers without an engine have their
// cgroups.
const cgroupParent = "katabox"

// Options are a user's options for a container. The zero value leaves the image's
// settings.
type Options struct {
	// ID is the container's.
	ID string
	// Args replace the image's command, Entrypoint its entry point.
	Args, Entrypoint []string
	// Env is added to the image's; KEY alone removes one.
	Env []string
	// Workdir and User replace the image's. User is a name or a number, with
	// a group after a colon or without.
	Workdir, User string
	// Hostname is the ID if it is empty.
	Hostname string
	// Terminal gives the process a terminal.
	Terminal bool
	// ReadOnly makes the root file system read-only.
	ReadOnly bool
	// Memory is a limit in bytes, CPUs one in processors; 0 is none.
	Memory int64
	CPUs   float64
	// Mounts are added to the default ones.
	Mounts []specs.Mount
	// NetNS is the path of the container's network namespace; "" is a new one
	// without links.
	NetNS string
	// Annotations are the pod's.
	Annotations map[string]string
}

// New makes the specification. root is a directory with the image's files, for
// looking up users and groups by name; the specification's own root is "rootfs"
// in the bundle.
func New(ctx context.Context, root string, config v1.ImageConfig, o Options) (*specs.Spec, error) {
	args, err := arguments(config, o)
	if err != nil {
		return nil, err
	}
	opts := []oci.SpecOpts{
		oci.WithDefaultPathEnv, oci.WithProcessArgs(args...), oci.WithEnv(config.Env), oci.WithEnv(o.Env),
		oci.WithProcessCwd(workdir(config, o)), oci.WithDefaultUnixDevices,
		oci.WithoutRunMount, oci.WithMounts(append([]specs.Mount{cgroupMount}, o.Mounts...)),
		oci.WithHostname(orElse(o.Hostname, o.ID)), oci.WithAnnotations(o.Annotations),
		withUser(root, orElse(o.User, config.User)),
		oci.WithRootFSPath("rootfs"), oci.WithNewPrivileges, oci.WithRlimit(&openFiles),
	}
	opts = append(opts, limits(o)...)
	if o.Terminal {
		opts = append(opts, oci.WithTTY)
	}
	if o.ReadOnly {
		opts = append(opts, oci.WithRootFSReadonly())
	}
	if o.NetNS != "" {
		opts = append(opts, oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: o.NetNS}))
	}
	// Last: the profile allows what the capabilities do.
	opts = append(opts, seccomp.WithDefaultProfile())
	ctx = namespaces.WithNamespace(ctx, cgroupParent)
	s, err := oci.GenerateSpec(ctx, nil, &containers.Container{ID: o.ID}, opts...)
	if err != nil {
		return nil, fmt.Errorf("make specification: %w", err)
	}
	return s, nil
}

// openFiles are systemd's limits for a service, which Docker's containers have
// (systemd-system.conf(5), DefaultLimitNOFILE). containerd's default for a specification
// is 1024 without a way to raise it, too low for databases.
var openFiles = specs.POSIXRlimit{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 512 << 10}

// cgroupMount shows the container its own cgroup.
var cgroupMount = specs.Mount{
	Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup",
	Options: []string{"ro", "nosuid", "noexec", "nodev"},
}

func arguments(config v1.ImageConfig, o Options) ([]string, error) {
	entry, cmd := config.Entrypoint, config.Cmd
	if o.Entrypoint != nil {
		entry, cmd = o.Entrypoint, nil // the image's command belongs to its entry point
	}
	if len(o.Args) > 0 {
		cmd = o.Args
	}
	args := slices.Concat(entry, cmd)
	if len(args) == 0 || args[0] == "" {
		return nil, fmt.Errorf("no command: the image has none, give one: %w", errdefs.ErrInvalidArgument)
	}
	return args, nil
}

func workdir(config v1.ImageConfig, o Options) string {
	return path.Join("/", orElse(o.Workdir, config.WorkingDir))
}

func orElse(value, other string) string {
	if value != "" {
		return value
	}
	return other
}

// cpuPeriod is the period of a CPU limit, in microseconds.
const cpuPeriod = 100_000

func limits(o Options) []oci.SpecOpts {
	var opts []oci.SpecOpts
	if o.Memory > 0 {
		opts = append(opts, oci.WithMemoryLimit(uint64(o.Memory)))
	}
	if o.CPUs > 0 {
		opts = append(opts, oci.WithCPUCFS(int64(o.CPUs*cpuPeriod), cpuPeriod))
	}
	return opts
}

// withUser looks up a user and its groups in the image's files.
func withUser(root, user string) oci.SpecOpts {
	if user == "" {
		user = "0"
	}
	return func(ctx context.Context, client oci.Client, c *containers.Container, s *oci.Spec) error {
		if err := checkUserFiles(root); err != nil {
			return fmt.Errorf("user %s: %w", user, err)
		}
		// Without a snapshot, the options read the files in the specification's
		// root.
		shown := *s
		shown.Root = &specs.Root{Path: root}
		name, _, hasGroup := strings.Cut(user, ":")
		if err := oci.WithUser(user)(ctx, client, c, &shown); err != nil {
			return fmt.Errorf("user %s: %w", user, err)
		}
		if hasGroup {
			return nil
		}
		if err := oci.WithAdditionalGIDs(name)(ctx, client, c, &shown); err != nil {
			return fmt.Errorf("groups of user %s: %w", user, err)
		}
		return nil
	}
}

// checkUserFiles refuses an image whose files of users and groups would do something
// else than end when they are opened: a FIFO waits for its writer, and a device node
// is one of this host's.
func checkUserFiles(root string) error {
	for _, name := range []string{"/etc/passwd", "/etc/group"} {
		file, err := fs.RootPath(root, name)
		if err != nil {
			return fmt.Errorf("find %s of the image: %w", name, err)
		}
		info, err := os.Lstat(file)
		switch {
		case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		case err != nil:
			return fmt.Errorf("find %s of the image: %w", name, err)
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is not a regular file in the image: %w", name, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// Exec makes the process of an exec: the container's own process with the options
// that are set. root is a directory with the container's files of users and groups; it is
// not used without a user. Options that do not concern a process are ignored.
func Exec(ctx context.Context, root string, of *specs.Process, o Options) (*specs.Process, error) {
	p := *of
	p.Args, p.Terminal = o.Args, o.Terminal
	p.Env = slices.Clone(of.Env)
	p.ConsoleSize = nil
	s := &specs.Spec{Process: &p, Root: &specs.Root{}, Linux: &specs.Linux{}}
	opts := []oci.SpecOpts{oci.WithEnv(o.Env)}
	if o.Workdir != "" {
		opts = append(opts, oci.WithProcessCwd(path.Join("/", o.Workdir)))
	}
	if o.User != "" {
		opts = append(opts, withUser(root, o.User))
	}
	if o.Terminal {
		opts = append(opts, oci.WithTTY)
	}
	if err := oci.ApplyOpts(ctx, nil, &containers.Container{}, s, opts...); err != nil {
		return nil, fmt.Errorf("make process: %w", err)
	}
	return s.Process, nil
}
