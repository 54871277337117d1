package client

import (
	"slices"
	"strings"
	"testing"
)

// A shim gets no variable that was meant for the shim of another engine, or for a process
// with inherited descriptors; it gets those that merely look like one.
func TestVariablesOfAnotherEngine(t *testing.T) {
	kept := []string{"PATH=/bin", "KATA_CONF_FILE=/c", "NOTIFY_SOCKETS=/s", "LISTEN_FDNAMES=a", "X=NOTIFY_SOCKET=/s", "ttrpc_address=/s", ""}
	dropped := []string{
		"TTRPC_ADDRESS=/s", "GRPC_ADDRESS=/s", "MAX_SHIM_VERSION=2", "EXIT_FIFO_DIR=/d",
		"NOTIFY_SOCKET=/run/systemd/notify", "NOTIFY_SOCKET=@a=b", "LISTEN_FDS=1", "LISTEN_PID=7", "LISTEN_PID=",
	}
	got := slices.DeleteFunc(slices.Concat(kept, dropped), ofAnotherEngine)
	if !slices.Equal(got, kept) {
		t.Errorf("kept:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(kept, "\n"))
	}
}
