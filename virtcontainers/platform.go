package virtcontainers

import (
	"context"
	"path/filepath"
	"time"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/podnet"
)

// Transport is the host's side of a VM's vsock.
type Transport interface {
	// Kind names the transport in logs.
	Kind() string
	// Attach attaches the device to the VM. It may be called once, and again
	// after Detach.
	Attach(ctx context.Context, vm hypervisor.Attacher) error
	// Detach removes the device from the VM, which ends every connection. After
	// an error the device is still attached, and Detach may be called again.
	Detach(ctx context.Context, vm hypervisor.Detacher) error
	// Dial is a guest.DialFunc.
	Dial(ctx context.Context, port uint32) (guest.Conn, error)
	// Hold says whether the VM is about to be paused, or runs again: between
	// those calls connections outlive a pause.
	Hold(paused bool)
	// Close ends every connection. It may be called again.
	Close() error
}

// Platform is what the host gives to every sandbox.
type Platform struct {
	Monitor hypervisor.Monitor
	Accel   hypervisor.Accel
	// AccelReason is why the host's virtualisation is not used, or empty.
	AccelReason string
	// KernelParams come before the configuration's.
	KernelParams  string
	OpenTransport func(context.Context) (Transport, error)
	// OpenNetwork opens a pod's network namespace; nil leaves pods without
	// network. CleanNetwork undoes what a sandbox that died made in one: made
	// is what the sandbox last saved.
	OpenNetwork  podnet.OpenFunc
	CleanNetwork func(namespace string, made []byte) error
	// OpenForward forwards ports of a network namespace into the guest; if nil,
	// pods' ports are not forwarded.
	OpenForward podnet.ForwardFunc
	// CgroupRoot is where the host's cgroup file systems are; empty is
	// hostcgroup.DefaultRoot.
	CgroupRoot string
	// RunDir holds what sandboxes make on the host while they live.
	RunDir string
	// Owner is the sandboxes' owner. It is part of the names of what they make
	// in RunDir, because another engine may use the same ids.
	Owner persist.Owner
	// Failpoint names a boot step that fails after it was done, or is empty.
	// Tests use it to check that a failed create leaves nothing.
	Failpoint string
	// StartMaker starts processes that make missing templates; if nil, none are
	// made.
	StartMaker StartMaker
	// StartSpare starts a process that makes a spare machine; if nil, none are
	// made.
	StartSpare func(TemplateOrder) error
	// StartKeeper starts a process that keeps a template's memory for the next pods
	// (factory.Store.Keep); if nil, it is only shared while pods have it.
	StartKeeper func(KeepOrder) error
	// RefillPause is how long after the start of a pod's first container missing
	// spares are ordered; 0 is half a second.
	RefillPause time.Duration
	// Spare is the machine that the first sandbox adopts if it fits; nil for
	// none. New owns it.
	Spare *Spare

	// states is where records are kept, if not in RunDir: the record of a
	// machine that becomes a template is removed with the rest of its making.
	states string
}

// StateDir returns the directory of the sandboxes' records.
func (p Platform) StateDir() string {
	if p.states != "" {
		return p.states
	}
	return filepath.Join(p.RunDir, "sandboxes")
}

// PodDir returns the directory of a sandbox's record.
func (p Platform) PodDir(sandboxID string) string {
	return filepath.Join(p.StateDir(), p.Owner.Name(sandboxID))
}
