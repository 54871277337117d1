package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/virtcontainers/config"
)

func checkCommand(h host) *cli.Command {
	return &cli.Command{
		Name:    "check",
		Aliases: []string{"kata-check"},
		Usage:   "check whether this host can run pods; exits with 0 if it can, with 1 if not",
		Description: "Each line is ok, warning (pods run, but not as they could) or missing (no pod runs),\n" +
			"with what that means and the command that changes it. Run it as root, as the shim does.",
		Flags:  append([]cli.Flag{configFlag(), jsonFlag()}, acceptedCheckFlags()...),
		Before: noArguments,
		Action: func(ctx context.Context, c *cli.Command) error {
			r := newReport(h.check(ctx, configFile(c)))
			if c.Bool("json") {
				if err := writeJSON(c.Root().Writer, r); err != nil {
					return err
				}
			} else {
				r.writeText(c.Root().Writer)
			}
			if !r.CanRun {
				return errNoPod
			}
			return nil
		},
	}
}

// check does all checks. Without a configuration it does only those that do not
// need one.
func (h host) check(ctx context.Context, configFile string) []result {
	cfg, found := h.checkConfig(configFile)
	results := []result{h.checkUser(), found}
	results = append(results, h.checkAccel(), h.checkVsock(ctx))
	if cfg != nil {
		results = append(results, h.checkPrograms(ctx, cfg)...)
	}
	results = append(results, h.checkShim(), h.checkHostKernel(), h.checkTUN(), h.checkVhostNet(cfg), h.checkTraffic(cfg), h.checkSkLookup(), h.checkIDMap())
	return results
}

func (h host) checkPrograms(ctx context.Context, cfg *config.Config) []result {
	results := append([]result{h.checkQEMU(ctx, cfg)}, h.checkNamed(ctx, cfg)...)
	return append(results,
		h.checkVirtioFSD(ctx, cfg), h.checkKernel(cfg), h.checkInitrd(cfg), h.checkMemory(cfg), h.checkEntropy(cfg))
}
