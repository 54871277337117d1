package task

import (
	"context"
	"fmt"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/virtcontainers/config"
)

// sandboxConfig reads the configuration and applies the sandbox's annotations.
func sandboxConfig(ctx context.Context, options *anypb.Any, annotations map[string]string) (*config.Config, error) {
	cfg, err := loadConfig(ctx, options)
	if err != nil {
		return nil, err
	}
	cfg, err = cfg.Annotate(annotations)
	return cfg, asInvalid(err)
}

func asInvalid(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
}

// shimCgroup returns the one option of runc's that concerns the shim: the cgroup
// to put it into (containerd's WithShimCgroup), or "" for none.
func shimCgroup(options *anypb.Any) (string, error) {
	if options == nil || !options.MessageIs((*runcoptions.Options)(nil)) {
		return "", nil
	}
	var opts runcoptions.Options
	if err := options.UnmarshalTo(&opts); err != nil {
		return "", fmt.Errorf("decode runc's options: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return opts.ShimCgroup, nil
}

// loadConfig reads the configuration; the engine may name its file in the
// runtime's options. Options without a name are a warning. Of runc's options only
// shimCgroup reads one.
func loadConfig(ctx context.Context, options *anypb.Any) (*config.Config, error) {
	path, ignored := "", false
	if options != nil && options.MessageIs((*runtimeoptions.Options)(nil)) {
		var opts runtimeoptions.Options
		if err := options.UnmarshalTo(&opts); err != nil {
			return nil, fmt.Errorf("decode runtime options: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		path, ignored = opts.ConfigPath, opts.ConfigPath == "" && len(opts.ConfigBody) > 0
	} else if options != nil && options.TypeUrl != "" {
		log.G(ctx).WithField("type", options.TypeUrl).Debug("runtime options ignored")
	}
	cfg, err := config.Load(path)
	if err != nil {
		return nil, asInvalid(err)
	}
	if ignored {
		cfg.Warnings = append(cfg.Warnings, "the runtime's options in the engine's configuration are ignored: want only ConfigPath there, which names a configuration file")
	}
	return cfg, nil
}
