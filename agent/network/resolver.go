package network

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// resolver writes the guest's resolv.conf. Without DNS in the request, only a
// file that an earlier call wrote is removed.
func (j *job) resolver(context.Context) error {
	if j.want.resolver == "" {
		return j.dropResolver()
	}
	have, err := os.ReadFile(j.resolvConf)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read resolv.conf: %w", err)
	}
	if err == nil && string(have) == j.want.resolver {
		return nil
	}
	j.own.resolver = true
	if err := replace(j.resolvConf, j.want.resolver); err != nil {
		return fmt.Errorf("write resolv.conf: %w", err)
	}
	j.changes.addf("resolv.conf written")
	return nil
}

func (j *job) dropResolver() error {
	if !j.own.resolver {
		return nil
	}
	if err := os.Remove(j.resolvConf); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove resolv.conf: %w", err)
	}
	j.own.resolver = false
	j.changes.addf("resolv.conf removed")
	return nil
}

// replace writes a file atomically: a reader sees the old or the new one.
func replace(path, text string) error {
	part := path + ".new"
	if err := os.WriteFile(part, []byte(text), 0o644); err != nil {
		return err
	}
	if err := os.Rename(part, path); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return nil
}
