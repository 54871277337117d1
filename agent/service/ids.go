package service

import (
	"fmt"
	"regexp"
	"sync/atomic"

	"github.com/containerd/errdefs"
)

// maxID is the length of the longest id in bytes. Ids are path components.
const maxID = 128

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

func checkID(kind, id string) error {
	if len(id) > maxID || !validID.MatchString(id) {
		return fmt.Errorf("%s id %.40q is not valid: %w", kind, id, errdefs.ErrInvalidArgument)
	}
	return nil
}

// currentID is a container's id, which the container shares with its processes:
// Rejoin may change it.
type currentID struct{ id atomic.Pointer[string] }

func newID(id string) *currentID {
	var c currentID
	c.set(id)
	return &c
}

func (c *currentID) String() string { return *c.id.Load() }

func (c *currentID) set(id string) { c.id.Store(&id) }
