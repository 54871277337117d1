package manager

import (
	"fmt"
	"io"

	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
)

// RuntimeName is the runtime's name to containerd.
const RuntimeName = "io.containerd.kata.v2"

// Info answers containerd's -info: what runtime this is.
func Info(version string, stdout io.Writer) error {
	data, err := proto.Marshal(&types.RuntimeInfo{Name: RuntimeName, Version: &types.RuntimeVersion{Version: version}})
	if err != nil {
		return fmt.Errorf("encode runtime info: %w", err)
	}
	if _, err := stdout.Write(data); err != nil {
		return fmt.Errorf("answer with runtime info: %w", err)
	}
	return nil
}
