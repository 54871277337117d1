package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/cmd/internal/platform"
	"github.com/katabox/katabox/virtcontainers/config"
)

// runDir holds what sandboxes make on the host.
const runDir = platform.RunDir

func envCommand(h host) *cli.Command {
	return &cli.Command{
		Name:    "env",
		Aliases: []string{"kata-env"},
		Usage:   "print what a pod would get here: versions, paths, each value of the configuration and where it comes from",
		Description: "With --annotations a pod's annotations are tried: kata-runtime env \\\n" +
			"  --annotations io.katacontainers.config.hypervisor.default_memory=4096",
		Flags:  []cli.Flag{configFlag(), annotationsFlag(), jsonFlag()},
		Before: noArguments,
		Action: func(ctx context.Context, c *cli.Command) error {
			e, err := h.env(ctx, configFile(c), c.StringSlice("annotations"))
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return writeJSON(c.Root().Writer, e)
			}
			return e.writeTOML(c.Root().Writer)
		},
	}
}

// env is what a pod would get.
type env struct {
	Versions versions `json:"versions" toml:"versions"`
	Host     machine  `json:"host" toml:"host"`
	Paths    paths    `json:"paths" toml:"paths"`
	// Config is each key that has an effect, in the order of
	// configuration.toml.
	Config []value `json:"config" toml:"-"`
	// Warnings are those of loading the configuration.
	Warnings []string `json:"warnings" toml:"warnings"`
}

// versions are the versions that programs and files report, or why they do not.
type versions struct {
	Katabox     string `json:"katabox" toml:"katabox"`
	QEMU        string `json:"qemu" toml:"qemu"`
	VirtioFSD   string `json:"virtiofsd" toml:"virtiofsd"`
	GuestKernel string `json:"guestKernel" toml:"guest_kernel"`
	// GuestInitrd is the file's SHA-256: the agent reports its version only when
	// it runs.
	GuestInitrd string `json:"guestInitrd" toml:"guest_initrd"`
}

type machine struct {
	Kernel            string `json:"kernel" toml:"kernel"`
	CPUs              int    `json:"cpus" toml:"cpus"`
	MemoryMiB         uint64 `json:"memoryMiB" toml:"memory_mib"`
	Accelerator       string `json:"accelerator" toml:"accelerator"`
	AcceleratorReason string `json:"acceleratorReason,omitempty" toml:"accelerator_reason"`
	Vsock             string `json:"vsock" toml:"vsock"`
}

type paths struct {
	// Config is the files that were read, in the order of merging.
	Config []string `json:"config" toml:"config"`
	Shim   string   `json:"shim" toml:"shim"`
	RunDir string   `json:"runDir" toml:"run_dir"`
}

// value is one key of the configuration.
type value struct {
	Key    string        `json:"key"`
	Value  any           `json:"value"`
	Origin config.Origin `json:"origin"`
	// From is the origin in words.
	From string `json:"from"`
}

// env gathers it.
func (h host) env(ctx context.Context, configFile string, annotations []string) (*env, error) {
	cfg, err := h.podConfig(configFile, annotations)
	if err != nil {
		return nil, err
	}
	e := &env{
		Versions: h.versions(ctx, cfg),
		Host:     h.machine(ctx),
		Paths:    paths{Config: append([]string{}, cfg.Source...), RunDir: runDir, Shim: "not in PATH"},
		Config:   []value{},
		Warnings: append([]string{}, cfg.Warnings...),
	}
	if path, err := h.lookPath(shimName); err == nil {
		e.Paths.Shim = path
	}
	for _, v := range cfg.Values() {
		e.Config = append(e.Config, value{v.Key, v.Value, v.Origin, v.Origin.String()})
	}
	return e, nil
}

// podConfig loads the configuration and applies annotations to it.
func (h host) podConfig(configFile string, annotations []string) (*config.Config, error) {
	cfg, err := h.loadConfig(configFile)
	if err != nil {
		return nil, fmt.Errorf("load configuration: %w\ncorrect what is named above; docs/configuration.md has all keys", err)
	}
	if len(annotations) == 0 {
		return cfg, nil
	}
	pod := make(map[string]string, len(annotations))
	for _, a := range annotations {
		name, text, found := strings.Cut(a, "=")
		if !found || name == "" {
			return nil, fmt.Errorf("--annotations %q: want KEY=VALUE", a)
		}
		pod[name] = text
	}
	cfg, err = cfg.Annotate(pod)
	if err != nil {
		return nil, fmt.Errorf("a pod with these annotations is refused: %w\ndocs/configuration.md has all annotations and their rules", err)
	}
	return cfg, nil
}

func (h host) versions(ctx context.Context, cfg *config.Config) versions {
	program := func(path string) string {
		if path == "" {
			return "none: the shim serves the share"
		}
		v, err := h.programVersion(ctx, path)
		if err != nil {
			return "unknown: " + oneLine(err.Error())
		}
		return v
	}
	return versions{
		Katabox:     version,
		QEMU:        program(cfg.Hypervisor.Path),
		VirtioFSD:   program(cfg.Hypervisor.VirtioFS.Daemon),
		GuestKernel: cmp.Or(h.guestKernel(cfg.Hypervisor.Kernel), "unknown"),
		GuestInitrd: h.digest(cfg.Hypervisor.Initrd),
	}
}

// digest is a file's SHA-256, or why there is none.
func (h host) digest(path string) string {
	f, err := h.open(path)
	if err != nil {
		return "unknown: " + err.Error()
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "unknown: " + err.Error()
	}
	return fmt.Sprintf("sha256:%x", sum.Sum(nil))
}

func (h host) machine(ctx context.Context) machine {
	accel, reason := h.accel()
	m := machine{Kernel: h.release, CPUs: h.cpus, Accelerator: string(accel), AcceleratorReason: reason}
	kind, err := h.vsockKind(ctx)
	if err != nil {
		kind = "unknown: " + oneLine(err.Error())
	}
	m.Vsock = kind
	total, _ := h.meminfo("MemTotal") // 0 if it is unknown
	m.MemoryMiB = total >> 10
	return m
}
