package bundle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// Kind says what a container is to its pod.
type Kind int

// The kinds.
const (
	// Single is a container outside any pod: it gets its own VM.
	Single Kind = iota
	// Sandbox is a pod's first container ("pause"): the VM is made for it
	// and ends with it.
	Sandbox
	// Service is another container of a pod that is already running.
	Service
)

func (k Kind) String() string {
	switch k {
	case Single:
		return "single container"
	case Sandbox:
		return "sandbox"
	case Service:
		return "service container"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Membership says to which pod a container belongs, and as what.
type Membership struct {
	Kind Kind
	// SandboxID is the pod's id: the container's own for Single and Sandbox.
	SandboxID string
}

// kindAnnotations are the keys by which engines distinguish a pod's sandbox
// from its containers, with their values: CRI (containerd), CRI-O, and
// dockershim (iSulad uses that key too).
var kindAnnotations = []struct {
	key    string
	values map[string]Kind
}{
	{"io.kubernetes.cri.container-type", map[string]Kind{"sandbox": Sandbox, "container": Service}},
	{"io.kubernetes.cri-o.ContainerType", map[string]Kind{"sandbox": Sandbox, "container": Service}},
	{"io.kubernetes.docker.type", map[string]Kind{"podsandbox": Sandbox, "container": Service}},
}

// sandboxAnnotations are the keys under which a service container names its
// sandbox, in the order in which they are tried.
var sandboxAnnotations = []string{
	"io.kubernetes.cri.sandbox-id",
	"io.kubernetes.cri-o.SandboxID",
	"io.kubernetes.sandbox.id",
}

// Place finds a container's Membership from its id and its spec's annotations.
// A container without any of the keys is Single; an unknown value, or a service
// container that names no sandbox, is an error.
func Place(id string, annotations map[string]string) (Membership, error) {
	for _, a := range kindAnnotations {
		value, ok := annotations[a.key]
		if !ok {
			continue
		}
		kind, ok := a.values[value]
		if !ok {
			want := slices.Sorted(maps.Keys(a.values))
			return Membership{}, fmt.Errorf("annotation %s has the value %q, want %s: %w",
				a.key, value, strings.Join(want, " or "), errdefs.ErrInvalidArgument)
		}
		if kind == Sandbox {
			return Membership{Kind: Sandbox, SandboxID: id}, nil
		}
		return placeService(id, annotations)
	}
	return Membership{Kind: Single, SandboxID: id}, nil
}

func placeService(id string, annotations map[string]string) (Membership, error) {
	for _, key := range sandboxAnnotations {
		sandbox, ok := annotations[key]
		if !ok {
			continue
		}
		if err := CheckID(sandbox); err != nil {
			return Membership{}, fmt.Errorf("annotation %s: %w", key, err)
		}
		return Membership{Kind: Service, SandboxID: sandbox}, nil
	}
	return Membership{}, fmt.Errorf("service container %s names no sandbox, want one of the annotations %s: %w",
		id, strings.Join(sandboxAnnotations, ", "), errdefs.ErrInvalidArgument)
}
