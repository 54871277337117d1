package task_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// As with runc's shim, a logger's CONTAINER_ID is the id of the process that it is for:
// an exec has another log than its container.
func TestLoggersHaveTheProcessID(t *testing.T) {
	s, ctx, dir := newShim(t, nil), t.Context(), t.TempDir()
	logger := filepath.Join(dir, "logger")
	text := fmt.Sprintf("#!/bin/sh\necho \"$CONTAINER_NAMESPACE\" >\"%s/$CONTAINER_ID.id\"\nexec 5>&-\ncat <&3 >/dev/null\n", dir)
	if err := os.WriteFile(logger, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	r := s.request(t, sandboxID)
	r.Stdout = "binary://" + logger
	if _, err := s.Create(ctx, r); err != nil {
		t.Fatal(err)
	}
	exec := &taskapi.ExecProcessRequest{ID: sandboxID, ExecID: "e1", Stdout: r.Stdout, Spec: &anypb.Any{Value: []byte("{}")}}
	if _, err := s.Start(ctx, &taskapi.StartRequest{ID: sandboxID}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Exec(ctx, exec); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(ctx, &taskapi.StartRequest{ID: sandboxID, ExecID: "e1"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{sandboxID, "e1"} { // a logger is ready, and has written that
		if got, err := os.ReadFile(filepath.Join(dir, id+".id")); err != nil || strings.TrimSpace(string(got)) != "test" {
			t.Errorf("the logger of %s: namespace %q, %v", id, got, err)
		}
	}
}
