package qemu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

const (
	// stateFD is the name in QEMU of the pipe of a machine's state.
	stateFD = "state"
	// migrationRepeat is the interval at which QEMU is asked for its progress:
	// without the memory a migration takes a few milliseconds.
	migrationRepeat = time.Millisecond
	// migrationRate is the most bytes per second that QEMU writes: no bound.
	// Its default is one for a network.
	migrationRate = math.MaxInt64
	// cancelTimeout bounds the end of a save that was given up. It is longer
	// than a vhost-user back end may need for its state (vhostuser's saveWait),
	// during which QEMU does not answer.
	cancelTimeout = 25 * time.Second
)

// direction is the QMP command that moves a machine's state.
type direction string

const (
	save direction = "migrate"
	load direction = "migrate-incoming"
)

// scope says what a state contains.
type scope int

const (
	// whole is everything.
	whole scope = iota
	// shared leaves out memory that is in a file of the host's (QEMU's
	// capability x-ignore-shared).
	shared
)

// migrate writes or reads the machine's state, and waits until that is done. A
// QEMU that cannot read it ends. After an error no migration goes on, and QEMU no
// longer holds the pipe, unless it does not answer.
func (vm *VM) migrate(ctx context.Context, d direction, state *os.File, what scope) error {
	capabilities := []map[string]any{{"capability": "x-ignore-shared", "state": what == shared}}
	err := vm.mon.Execute(ctx, "migrate-set-capabilities", map[string]any{"capabilities": capabilities}, nil)
	if err == nil && d == save {
		err = vm.mon.Execute(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": migrationRate}, nil)
	}
	if err != nil {
		return err
	}
	return throughPipe(ctx, d, state, func(end *os.File) error { return vm.move(ctx, d, end) })
}

// move moves the state through a pipe, and waits until QEMU is done with it.
func (vm *VM) move(ctx context.Context, d direction, end *os.File) error {
	begun, err := vm.beginMigration(ctx, d, end)
	over := !begun
	if err == nil {
		over, err = vm.awaitMigration(ctx, d)
	}
	if err != nil && !over && d == save {
		vm.cancelMigration(ctx)
	}
	if err != nil {
		vm.closeState(ctx)
	}
	return err
}

// beginMigration begins to move the state. begun is also true if that is unknown.
func (vm *VM) beginMigration(ctx context.Context, d direction, end *os.File) (begun bool, err error) {
	if err := vm.mon.GetFD(ctx, stateFD, end); err != nil {
		return false, err
	}
	err = vm.mon.Execute(ctx, string(d), map[string]any{"uri": "fd:" + stateFD}, nil)
	return !refused(err), err
}

// cancelMigration ends a migration that no caller waits for any more, so that the
// machine can continue.
func (vm *VM) cancelMigration(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	if vm.mon.Execute(ctx, "migrate_cancel", nil, nil) == nil {
		_, _ = vm.awaitMigration(ctx, save) // it says that it was cancelled
	}
}

// closeState closes QEMU's duplicate of a pipe that no migration has taken: the
// other end would never see its end. QEMU refuses if it has none.
func (vm *VM) closeState(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = vm.mon.Execute(ctx, "closefd", map[string]any{"fdname": stateFD}, nil)
}

// migrationInfo is what QEMU says of a migration (qapi/migration.json,
// MigrationInfo).
type migrationInfo struct {
	Status string `json:"status"`
	Why    string `json:"error-desc"`
}

// awaitMigration waits within ctx until the migration is over. It also waits for a
// QEMU that does not answer meanwhile: its main loop blocks while a vhost-user back
// end transfers its state.
func (vm *VM) awaitMigration(ctx context.Context, d direction) (over bool, err error) {
	again := time.NewTicker(migrationRepeat)
	defer again.Stop()
	for {
		var info migrationInfo
		err := vm.mon.Execute(ctx, "query-migrate", nil, &info)
		switch {
		case isLate(err) && ctx.Err() == nil:
		case err != nil:
			return false, err
		case info.isOver(d):
			return true, info.failure()
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return false, fmt.Errorf("wait for QEMU's migration (%s): %w", info.Status, context.Cause(ctx))
		}
	}
}

// isLate reports whether QEMU did not answer within a command's time.
func isLate(err error) bool {
	var late *qmp.TimeoutError
	return errors.As(err, &late)
}

// isOver reports whether the migration has ended. A save has a status from the
// beginning, and a load has none at first (migration/migration.c, migrate_init and
// fill_destination_migration_info).
func (i migrationInfo) isOver(d direction) bool {
	switch i.Status {
	case "completed", "failed", "cancelled":
		return true
	}
	return i.Status == "" && d == save
}

func (i migrationInfo) failure() error {
	switch i.Status {
	case "completed":
		return nil
	case "":
		return errors.New("QEMU has no migration")
	}
	return fmt.Errorf("QEMU's migration %s: %s", i.Status, i.Why)
}
