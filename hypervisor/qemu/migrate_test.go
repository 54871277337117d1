package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// status answers query-migrate.
func status(of string) any { return json.RawMessage(`{"status":"` + of + `"}`) }

// What is done after a save or a load that fails depends on how far it came.
func TestMigrationFails(t *testing.T) {
	noMigration := &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: "not now"}
	for _, tt := range []struct {
		name string
		d    direction
		// begin and statuses are QEMU's answers.
		begin    any
		statuses []any
		want     []string // sent after the migration's command
	}{
		{"save refused", save, noMigration, nil, []string{"closefd"}},
		{"load refused", load, noMigration, nil, []string{"closefd"}},
		{"save failed", save, yes, []any{status("active"), status("failed")}, []string{"query-migrate", "query-migrate", "closefd"}},
		{"save vanished", save, yes, []any{yes}, []string{"query-migrate", "closefd"}},
		{
			"status refused", save, yes, []any{noMigration, status("cancelling"), status("cancelled")},
			[]string{"query-migrate", "migrate_cancel", "query-migrate", "query-migrate", "closefd"},
		},
		{"status of a load refused", load, yes, []any{yes, noMigration}, []string{"query-migrate", "query-migrate", "closefd"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vm := scriptAnswers(t, func(_ *qmptest.Server, r qmptest.Request) any {
				switch r.Execute {
				case string(tt.d):
					return tt.begin
				case "query-migrate":
					if len(tt.statuses) == 0 {
						t.Error("one query-migrate too many")
						return status("failed")
					}
					answer := tt.statuses[0]
					tt.statuses = tt.statuses[1:]
					return answer
				}
				return yes
			})
			if err := vm.migrate(testContext(t), tt.d, devNull(t), whole); err == nil {
				t.Error("no error")
			}
			var names []string
			for _, command := range vm.sent() {
				name, _, _ := strings.Cut(command, " ")
				names = append(names, name)
			}
			after := names[slices.Index(names, string(tt.d))+1:]
			if diff := cmp.Diff(tt.want, after); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A QEMU that does not answer for longer than a command may take is waited for
// until the context ends.
func TestMigrationOfBusyQEMU(t *testing.T) {
	const busy = qmp.DefaultTimeout + 5*time.Second
	for _, tt := range []struct {
		name  string
		limit time.Duration
		want  error
	}{
		{"in time", 2 * busy, nil},
		{"too late", busy - time.Second, errInjected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, server := qmptest.Pipe(t)
				go func() {
					server.Handshake()
					wait := busy
					server.Serve(func(qmptest.Request) any {
						time.Sleep(wait)
						wait = 0
						return status("completed")
					})
				}()
				mon := qmp.New(conn)
				if err := mon.Connect(); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), tt.limit, errInjected)
				defer cancel()
				over, err := (&VM{mon: mon}).awaitMigration(ctx, save)
				if !errors.Is(err, tt.want) || over != (tt.want == nil) {
					t.Errorf("over %v, %v, want %v", over, err, tt.want)
				}
				time.Sleep(busy) // until the server has answered
				_ = mon.Disconnect()
			})
		})
	}
}

var errInjected = errors.New("injected")

// The other end of a pipe sees its end when QEMU has refused to write to it.
func TestRefusedSnapshotEndsPipe(t *testing.T) {
	vm := launch(t, guestSpec(t))
	vsockTo(t, vm) // which cannot be saved
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := vm.SaveAll(testContext(t), w); err == nil {
		t.Error("a machine with a vsock device was saved")
	}
	_ = w.Close()
	_ = r.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Error(err)
	}
}
