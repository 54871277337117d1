package manager

import (
	"encoding/json"
	"fmt"
	"io"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
)

// Dialect is how an engine wants to be told the shim's address.
type Dialect int

// The dialects.
const (
	// DialectPlain is the bare address: containerd 1.6, iSulad, CRI-O.
	DialectPlain Dialect = iota
	// DialectJSON is for containerd 1.7 to 2.2, which set MAX_SHIM_VERSION and
	// have a socket for events.
	DialectJSON
	// DialectProto is for containerd 2.3 and later, which send bootstrap
	// parameters on stdin.
	DialectProto
)

// apiVersion is the version of the task API that an answer names. Every
// engine that reads an answer with a version knows 2; the socket serves 3 as
// well.
const (
	apiVersion      = 2
	apiVersionProto = 3
)

// writeAnswer tells the engine the address and, where its dialect can say that,
// what the shim mounts itself. Nothing else may go to w, not even a newline:
// iSulad takes every byte for the address.
func writeAnswer(w io.Writer, d Dialect, address string, mounts *types.MountCapabilities) error {
	data, err := encodeAnswer(d, address, mounts)
	if err != nil {
		return fmt.Errorf("encode address: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("answer with address: %w", err)
	}
	return nil
}

func encodeAnswer(d Dialect, address string, mounts *types.MountCapabilities) ([]byte, error) {
	switch d {
	case DialectJSON:
		return json.Marshal(struct {
			Version  int    `json:"version"`
			Address  string `json:"address"`
			Protocol string `json:"protocol"`
		}{apiVersion, address, "ttrpc"})
	case DialectProto:
		result := &bootapi.BootstrapResult{Version: apiVersionProto, Address: address, Protocol: "ttrpc"}
		if err := result.AddExtension(mounts); err != nil {
			return nil, err
		}
		return proto.Marshal(result)
	default:
		return []byte(address), nil
	}
}
