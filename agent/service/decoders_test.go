package service

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// The packages that buildDecoders names exist: a renamed one would silently be
// left out.
func TestSpokenPackagesExist(t *testing.T) {
	seen := map[protoreflect.FullName]int{}
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		seen[m.Descriptor().ParentFile().Package()]++
		return true
	})
	for name := range spoken {
		if seen[name] < 10 {
			t.Errorf("package %s has %d messages", name, seen[name])
		}
	}
	if err := buildDecoders(); err != nil {
		t.Error(err)
	}
}
