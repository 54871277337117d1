package bundle

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
)

// PublishAnnotation lists the container's UNIX sockets that are reachable from
// the host: words of the form NAME=PATH, or NAME=CONTAINER:PATH, which applies
// only to the pod's container of that name. NAME:seqpacket in place of NAME is
// for a SOCK_SEQPACKET socket.
const PublishAnnotation = "io.katacontainers.container.publish_sockets"

const (
	// maxPublished bounds the sockets of one container.
	maxPublished = 16
	// maxPublishedPath is the agent's bound (agent/forward), in bytes.
	maxPublishedPath = 1024
	// What may follow a name and a colon: the socket's type.
	streamWord, seqpacketWord = "stream", "seqpacket"
)

// publishedName leaves room for the name in the address of a socket in the
// sandbox's directory (unix(7): 107 bytes).
var publishedName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,15}$`)

// containerNames are the annotations by which engines say what a pod's container
// is called in the pod. The last is the kubelet's label, which CRI-O copies.
var containerNames = []string{"io.kubernetes.cri.container-name", "io.kubernetes.cri-o.ContainerName", "io.kubernetes.container.name"}

// PublishedSocket is a UNIX socket in a container that the host reaches by a
// name.
type PublishedSocket struct {
	// Name is a file's name, of at most 16 bytes.
	Name string
	// Path is absolute and clean, as the container sees it.
	Path string
	// Seqpacket reports that the socket is SOCK_SEQPACKET, not SOCK_STREAM.
	Seqpacket bool
}

// PublishedSockets reads PublishAnnotation. A pod's sandbox has none: engines
// also put the annotations for the pod's containers there.
func PublishedSockets(id string, annotations map[string]string) ([]PublishedSocket, error) {
	place, err := Place(id, annotations)
	if err != nil || place.Kind == Sandbox {
		return nil, err
	}
	var list []PublishedSocket
	seen := map[string]bool{}
	for _, word := range strings.Fields(annotations[PublishAnnotation]) {
		s, container, err := parsePublished(word)
		if err == nil && container != "" && place.Kind == Single {
			err = fmt.Errorf("it names the container %q, but this one is in no pod: want NAME=PATH", container)
		}
		if err == nil && seen[s.Name] {
			err = fmt.Errorf("the name %s is used twice", s.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %.100q: %w: %w", PublishAnnotation, word, err, errdefs.ErrInvalidArgument)
		}
		seen[s.Name] = true
		if container == "" || container == ContainerName(annotations) {
			list = append(list, s)
		}
	}
	if len(list) > maxPublished {
		return nil, fmt.Errorf("annotation %s: %d sockets, at most %d are published: %w", PublishAnnotation, len(list), maxPublished, errdefs.ErrInvalidArgument)
	}
	return list, nil
}

func parsePublished(word string) (s PublishedSocket, container string, err error) {
	name, where, ok := strings.Cut(word, "=")
	name, kind, typed := strings.Cut(name, ":")
	if !ok || !publishedName.MatchString(name) {
		return s, "", fmt.Errorf("want NAME=PATH, the name of 1 to 16 letters, digits, '-', '_' or '.', beginning with a letter or digit")
	}
	if typed && kind != seqpacketWord && kind != streamWord {
		return s, "", fmt.Errorf("want %s:%s=PATH or %s:%s=PATH", name, streamWord, name, seqpacketWord)
	}
	if !strings.HasPrefix(where, "/") {
		if container, where, ok = strings.Cut(where, ":"); !ok || container == "" {
			return s, "", fmt.Errorf("want an absolute path after %s=, or a container's name, a colon and such a path", name)
		}
	}
	if !path.IsAbs(where) || path.Clean(where) != where || len(where) > maxPublishedPath {
		return s, "", fmt.Errorf("want an absolute path without '.', '..' or double slashes, of at most %d bytes", maxPublishedPath)
	}
	return PublishedSocket{Name: name, Path: where, Seqpacket: kind == seqpacketWord}, container, nil
}

// ContainerName returns the container's name in its pod, or "" if no annotation
// has it. A container that is created again has another id and the same name.
func ContainerName(annotations map[string]string) string {
	for _, key := range containerNames {
		if name := annotations[key]; name != "" {
			return name
		}
	}
	return ""
}
