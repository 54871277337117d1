package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// recordVersion is the format of what Options.Save gets.
const recordVersion = 1

// record is all that has to be undone in a namespace.
type record struct {
	Version   int      `json:"version"`
	Namespace identity `json:"namespace"`
	Joints    []joint  `json:"links"`
}

// joint is what is made to join one link to its NIC. Not all of it need exist:
// the record is written first.
type joint struct {
	// Link is the index of the link.
	Link int `json:"link"`
	// Made is the name of the tap or macvtap, of kind Kind; empty for a link
	// that is a tap itself.
	Made string `json:"made,omitempty"`
	Kind string `json:"kind,omitempty"`
	// Shaper is the name of the ifb for what the guest receives over a macvtap,
	// or empty.
	Shaper string `json:"shaper,omitempty"`
	// Ingress is set if the link's ingress qdisc is ours.
	Ingress bool `json:"ingress,omitempty"`
	// Priority is our filter's priority on the link, 0 for none.
	Priority uint16 `json:"priority,omitempty"`
	// Sockets is the priority of the link's filter that finds the host's sockets, 0 for
	// none.
	Sockets uint16 `json:"sockets,omitempty"`
	// Rate is set if the link's root qdisc is ours.
	Rate bool `json:"rate,omitempty"`
	// Multicast is set if the link's flag IFF_ALLMULTI is to be cleared. Only earlier
	// versions set the flag; receiveMulticast needs no record.
	Multicast bool `json:"multicast,omitempty"`
}

// Clean removes what a dead process has made in a namespace: made is what
// Options.Save got last. If the namespace is gone, so is everything in it;
// another namespace at the same path is not changed. It fails with
// errdefs.ErrInvalidArgument when made is not a record of this release.
func Clean(path string, made []byte) error {
	rec, err := decodeRecord(made)
	if err != nil {
		return fmt.Errorf("clean network namespace %s: %w", path, err)
	}
	ns, err := openNamespace(path)
	if errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) {
		return nil // gone, or another namespace
	}
	if err != nil {
		return fmt.Errorf("clean: %w", err)
	}
	if rec.Namespace != ns.id {
		return ns.close()
	}
	var errs []error
	for _, j := range rec.Joints {
		errs = append(errs, ns.undo(j))
	}
	errs = append(errs, ns.close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean network namespace %s: %w", path, err)
	}
	return nil
}

// decodeRecord reads and checks a record.
func decodeRecord(made []byte) (*record, error) {
	dec := json.NewDecoder(bytes.NewReader(made))
	dec.DisallowUnknownFields()
	var rec record
	if err := dec.Decode(&rec); err != nil {
		return nil, fmt.Errorf("read what was made: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if rec.Version != recordVersion {
		return nil, fmt.Errorf("read what was made: version %d, want %d: %w", rec.Version, recordVersion, errdefs.ErrInvalidArgument)
	}
	if len(rec.Joints) > 2*api.MaxInterfaces { // those that are leaving count too
		return nil, fmt.Errorf("read what was made: %d links, want at most %d: %w", len(rec.Joints), 2*api.MaxInterfaces, errdefs.ErrInvalidArgument)
	}
	return &rec, nil
}

// save records what was made, and what is about to be made.
func (n *Network) save(coming ...joint) error {
	rec := record{Version: recordVersion, Namespace: n.ns.id, Joints: coming}
	for _, c := range n.nics {
		rec.Joints = append(rec.Joints, c.made)
	}
	slices.SortFunc(rec.Joints, func(a, b joint) int { return a.Link - b.Link })
	data, err := json.Marshal(rec)
	if err == nil {
		err = n.opts.Save(data)
	}
	if err != nil {
		return fmt.Errorf("save what is made in the network namespace: %w", err)
	}
	return nil
}

// undo removes what was made for a link, as far as it exists. The link may be
// gone.
func (ns *namespace) undo(j joint) error {
	var errs []error
	if j.Priority != 0 {
		errs = append(errs, ns.removeRedirect(j.Link, j.Priority))
	}
	if j.Sockets != 0 {
		errs = append(errs, ns.removeSockets(j.Link, j.Sockets))
	}
	if j.Ingress {
		errs = append(errs, ns.removeIngress(j.Link))
	}
	if j.Rate {
		errs = append(errs, ns.removeRate(j.Link))
	}
	errs = append(errs, ns.dropMulticast(j.Link))
	if j.Multicast {
		errs = append(errs, ns.clearMulticast(j.Link))
	}
	if j.Made != "" {
		errs = append(errs, ns.removeLink(j.Made, j.Kind))
	}
	if j.Shaper != "" {
		errs = append(errs, ns.removeLink(j.Shaper, shaperKind))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("link %d: %w", j.Link, err)
	}
	return nil
}
