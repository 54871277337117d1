package manager

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

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

// The versions of the task API. The socket serves both.
const (
	// apiVersion is the one that every engine which reads a version supports.
	apiVersion = 2
	// apiVersionSandbox also means that the shim serves the sandbox API.
	// containerd 1.7 refuses it.
	apiVersionSandbox = 3
)

// sandboxController is the directory, below its state directory, in which containerd
// 2.x keeps the bundles of the sandbox API's sandboxes (the id of its plugin). 1.7
// keeps them among the containers' bundles.
const sandboxController = "io.containerd.sandbox.controller.v1.shim"

// answerVersion is the version that start answers with. containerd 2.1 and later
// passes a sandbox's containers to its shim only if that answered with version 3;
// else it calls start for each (core/runtime/v2/shim_manager.go).
func answerVersion(p *Params) int {
	if p.Dialect == DialectProto || filepath.Base(filepath.Dir(filepath.Dir(p.Bundle))) == sandboxController {
		return apiVersionSandbox
	}
	return apiVersion
}

// writeAnswer writes the address and, where the dialect has fields for them, the
// version and which mounts the shim makes itself. Nothing else may be written to w, not
// even a newline: iSulad takes every byte as part of the address.
func writeAnswer(w io.Writer, d Dialect, version int, address string, mounts *types.MountCapabilities) error {
	data, err := encodeAnswer(d, version, address, mounts)
	if err != nil {
		return fmt.Errorf("encode address: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("answer with address: %w", err)
	}
	return nil
}

func encodeAnswer(d Dialect, version int, address string, mounts *types.MountCapabilities) ([]byte, error) {
	switch d {
	case DialectJSON:
		return json.Marshal(struct {
			Version  int    `json:"version"`
			Address  string `json:"address"`
			Protocol string `json:"protocol"`
		}{version, address, "ttrpc"})
	case DialectProto:
		result := &bootapi.BootstrapResult{Version: int32(version), Address: address, Protocol: "ttrpc"}
		if err := result.AddExtension(mounts); err != nil {
			return nil, err
		}
		return proto.Marshal(result)
	default:
		return []byte(address), nil
	}
}
