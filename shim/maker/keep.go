package maker

import (
	"context"
	"errors"
	"os/signal"
	"syscall"

	"github.com/katabox/katabox/virtcontainers/factory"
)

// keeperName is what ps shows for a keeper.
const keeperName = "kata-keeper"

// Keep is the keeper. args are the command-line arguments after KeeperCommand: the
// store's directory, and the template's key. SIGTERM ends it.
func Keep(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errNotByHand
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	memory, err := settle(keeperName)
	if err != nil {
		return err
	}
	return errors.Join(factory.Store{Dir: args[0]}.Keep(ctx, factory.Key(args[1]), memory), memory.Close())
}
