package maker

import (
	"context"
	"errors"
	"io/fs"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/factory"
)

// keeperName is what ps shows for a keeper.
const keeperName = "kata-keeper"

// Keep is the keeper. args are the command-line arguments after KeeperCommand: the
// store's directory, the template's key, and the sum of its memory. SIGTERM ends it.
func Keep(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errNotByHand
	}
	sum, err := strconv.ParseUint(args[2], 10, 32)
	if err != nil {
		return errNotByHand
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	memory, err := settle(keeperName)
	if err != nil {
		return err
	}
	err = factory.Store{Dir: args[0]}.Keep(ctx, factory.Key(args[1]), uint32(sum), memory)
	if errdefs.IsAlreadyExists(err) || errdefs.IsFailedPrecondition(err) || errors.Is(err, fs.ErrNotExist) {
		err = nil // it has a keeper, was made again, or was removed: there is nothing to keep
	}
	return errors.Join(err, memory.Close())
}
