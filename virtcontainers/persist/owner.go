package persist

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Owner identifies the engine, and its namespace, that a pod belongs to. Ids are
// unique within one owner only.
type Owner struct {
	// Address is the engine's socket, or what the engine passes in its place.
	Address   string `json:"address,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

const (
	// shownID is how many bytes of an id a name has, and nameHash how many of
	// the hash.
	shownID  = 40
	nameHash = 6
)

// Name returns the name of a pod's record directory and cgroups on the host:
// the beginning of the id, for readability, and a hash of owner and id. It has
// at most 53 bytes, which leaves room for a socket in that directory (unix(7):
// 107 bytes). The zero Owner's name is the id itself, of any length, as in
// records of older shims.
func (o Owner) Name(sandboxID string) string {
	if o == (Owner{}) {
		return sandboxID
	}
	sum := sha256.Sum256([]byte(o.Address + "\x00" + o.Namespace + "\x00" + sandboxID))
	return fmt.Sprintf("%s-%x", sandboxID[:min(len(sandboxID), shownID)], sum[:nameHash])
}

// Find reads the records of all pods with that id, of any owner. Records that
// cannot be read are skipped. Finding none is not an error.
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

// List reads all records. Records that cannot be read, such as those of pods that
// are just starting or ending, are skipped.
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
		if rec := read(root, e.Name()); rec != nil {
			all = append(all, rec)
		}
	}
	return all, nil
}

// read returns the record of that name, nil if it cannot be read. One in a
// directory of another name is not trusted.
func read(root, name string) *Record {
	rec, err := Load(root, name)
	if err != nil || rec.Owner.Name(rec.SandboxID) != name {
		return nil
	}
	return rec
}
