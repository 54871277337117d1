package service

import (
	"encoding/json"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// spoken are the protobuf packages of the agent's services.
var spoken = map[protoreflect.FullName]bool{
	"katabox.agent.v1":   true,
	"containerd.task.v3": true,
}

// buildDecoders has the packages that decode the host's messages build their
// tables, which they do at each type's first use and keep.
func buildDecoders() error {
	if err := json.Unmarshal([]byte("{}"), new(specs.Spec)); err != nil {
		return fmt.Errorf("decode an empty spec: %w", err)
	}
	var err error
	protoregistry.GlobalTypes.RangeMessages(func(t protoreflect.MessageType) bool {
		if spoken[t.Descriptor().ParentFile().Package()] {
			_, err = proto.Marshal(t.New().Interface())
		}
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("encode an empty message: %w", err)
	}
	return nil
}
