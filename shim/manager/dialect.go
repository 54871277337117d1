package manager

import (
	"encoding/json"
	"fmt"
	"io"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
)

// Dialect is the form in which an engine expects the shim's address.
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

// apiVersion is the version of the task API that an answer names. Every engine
// that reads a version supports 2; the socket also serves 3.
const (
	apiVersion      = 2
	apiVersionProto = 3
)

// writeAnswer writes the address and, where the dialect has a field for it, which
// mounts the shim makes itself. Nothing else may be written to w, not even a
// newline: iSulad takes every byte as part of the address.
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
