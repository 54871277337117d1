package client

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/katabox/katabox/shim/rpc"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// olderShim is a process that ends a while after Shutdown, and a server that answers for
// it without EndingMethod. It returns their bundle.
func olderShim(t *testing.T, ends bool) (dir string, process *exec.Cmd) {
	t.Helper()
	dir = t.TempDir()
	process = exec.Command("sleep", "1000")
	process.Dir = dir
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	server.RegisterService(taskService, &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"Connect": rpc.Method(func(context.Context, *task.ConnectRequest) (*task.ConnectResponse, error) {
			return &task.ConnectResponse{ShimPid: uint32(process.Process.Pid)}, nil
		}),
		"Shutdown": rpc.Method(func(context.Context, *task.ShutdownRequest) (*emptypb.Empty, error) {
			if !ends {
				return &emptypb.Empty{}, nil
			}
			time.AfterFunc(200*time.Millisecond, func() { _ = process.Process.Kill() })
			return &emptypb.Empty{}, os.WriteFile(filepath.Join(dir, bundle.EndingFile), nil, 0o600)
		}),
	}})
	socket := filepath.Join(dir, "socket")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	if err := os.WriteFile(filepath.Join(dir, bundle.AddressFile), []byte(bundle.AddressScheme+socket), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, process
}

// A shim of an earlier version, which runs on after an update, is waited for, too.
func TestShutdownOfAnOlderShim(t *testing.T) {
	for name, ends := range map[string]bool{"ends": true, "has containers": false} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			dir, process := olderShim(t, ends)
			s, err := Connect(ctx, dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Shutdown(ctx, "c1"); err != nil {
				t.Error(err)
			}
			if alive(process.Process.Pid) == ends {
				t.Errorf("after Shutdown it ends %t, want %t", !ends, ends)
			}
		})
	}
}
