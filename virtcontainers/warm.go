package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/warmup"
)

// warmUp makes the calls of a pod in a guest that has none, and runs and removes a
// container there (package warmup). An agent of another release can do none of this,
// and has then not mounted the share. An agent that hangs must not hold the lock of all
// that makes spares and templates.
func (m *machine) warmUp(ctx context.Context, isTemplate bool) error {
	// The machine is not used after an error, such as the guest's end.
	m.files.Connect(m.client, func() bool { return false })
	ctx, cancel := context.WithTimeout(ctx, m.config.Agent.DialTimeout)
	defer cancel()
	ctx, stop := m.whileAlive(ctx)
	defer stop()
	err := m.client.Prepare(ctx, &api.PrepareRequest{Storages: m.files.EarlyStorages(), IsTemplate: isTemplate})
	if errdefs.IsNotImplemented(err) {
		return nil
	}
	if err == nil {
		defer m.followLog(ctx)()
		_, err = m.client.SetNetwork(ctx, &api.SetNetworkRequest{})
	}
	if err == nil {
		err = m.runWarmUp(ctx)
	}
	if err != nil {
		return m.explain(ctx, err)
	}
	m.mounted = true
	return nil
}

// followLog forwards the guest's log until end is called: what it has to say of its
// boot and of this container is not the pod's.
func (m *machine) followLog(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.client.ForwardLog(ctx) // fails with the guest, which other calls notice
	}()
	return func() {
		cancel()
		<-ended
	}
}

// runWarmUp makes the container's bundle and brings that into the guest: by the
// share if there is one.
func (m *machine) runWarmUp(ctx context.Context) (err error) {
	b, err := warmup.Make(filepath.Join(m.platform.PodDir(m.id), warmup.ID))
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.Dir)) }()
	files := m.files.Container(guestfs.Request{ID: warmup.ID, Bundle: b, CopyRootfs: !m.files.Shares()})
	for _, step := range files.Steps() {
		if err := step.Do(ctx); err != nil {
			return fmt.Errorf("warm up: %s: %w", step.Name, err)
		}
	}
	defer func() { err = errors.Join(err, files.Release(ctx)) }()
	if err := m.runToEnd(ctx, files); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	return nil
}

// runToEnd runs the container in the guest. After an error the machine is not
// used.
func (m *machine) runToEnd(ctx context.Context, files *guestfs.Container) error {
	spec, err := files.Spec()
	if err != nil {
		return err
	}
	req := &task.CreateTaskRequest{ID: warmup.ID}
	req.Stdin, req.Stdout, req.Stderr = streamNames(allStreams)
	if _, err := createTask(ctx, m.client, req, configOf(spec)); err != nil {
		return err
	}
	conns, err := m.openConns(ctx, warmup.ID, "", allStreams)
	if err != nil {
		return err
	}
	defer conns.close()
	if _, err := m.client.Task().Start(ctx, &task.StartRequest{ID: warmup.ID}); err != nil {
		return guest.Err(err)
	}
	if err := checkOutput(ctx, conns); err != nil {
		return err
	}
	exit, err := m.client.Task().Wait(ctx, &task.WaitRequest{ID: warmup.ID})
	if err != nil {
		return guest.Err(err)
	}
	if exit.GetExitStatus() != 0 {
		return fmt.Errorf("exit status %d", exit.GetExitStatus())
	}
	if !files.AwaitIdle(ctx) { // see settleFiles
		return errors.New("the host does not answer all requests of the container's files")
	}
	_, err = m.client.Task().Delete(ctx, &task.DeleteRequest{ID: warmup.ID})
	return guest.Err(err)
}

var allStreams = Streams{Stdin: true, Stdout: true, Stderr: true}

// checkOutput ends the container's input and reads its output.
func checkOutput(ctx context.Context, conns Conns) error {
	defer context.AfterFunc(ctx, conns.close)()
	if err := conns.Stdin.CloseWrite(); err != nil {
		return fmt.Errorf("end input: %w", err)
	}
	got, err := io.ReadAll(io.LimitReader(conns.Stdout, int64(len(warmup.Output))+1))
	if err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	if string(got) != warmup.Output {
		return fmt.Errorf("the output is %q, want %q", got, warmup.Output)
	}
	return nil
}
