package persist

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Owner is whose pods are: a namespace of an engine's. Engines choose ids
// without knowing of each other, and namespaces of one engine do too.
type Owner struct {
	// Address is the engine's own socket, or what it says in its place.
	Address   string `json:"address,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

const (
	// shownID is how much of an id is in a name.
	shownID = 40
	// nameHash is the bytes of the hash that are.
	nameHash = 6
)

// Name is what a pod's things on the host are called: its record's directory, its
// cgroup. It is the beginning of the id, for people, and a hash of id and owner.
// It has at most 53 bytes, which leaves a socket in that directory room
// (unix(7): 107 bytes). The zero Owner's name is the id itself: shims that kept
// records by the id alone made such, and it may be longer.
func (o Owner) Name(sandboxID string) string {
	if o == (Owner{}) {
		return sandboxID
	}
	sum := sha256.Sum256([]byte(o.Address + "\x00" + o.Namespace + "\x00" + sandboxID))
	return fmt.Sprintf("%s-%x", sandboxID[:min(len(sandboxID), shownID)], sum[:nameHash])
}

// Find reads the records of all pods with that id, whosever they are. Those that
// cannot be read are passed over, and none is not an error.
func Find(root, sandboxID string) ([]*Record, error) {
	all, err := List(root)
	if err != nil {
		return nil, err
	}
	var found []*Record
	for _, rec := range all {
		if rec.SandboxID == sandboxID {
			found = append(found, rec)
		}
	}
	return found, nil
}

// List reads all records. Those that cannot be read are passed over, as of pods
// that begin or end.
func List(root string) ([]*Record, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list sandbox states: %w", err)
	}
	var all []*Record
	for _, e := range entries {
		rec, err := Load(root, e.Name())
		// A directory that is called otherwise is not this pod's, whatever it says.
		if err == nil && rec.Owner.Name(rec.SandboxID) == e.Name() {
			all = append(all, rec)
		}
	}
	return all, nil
}
