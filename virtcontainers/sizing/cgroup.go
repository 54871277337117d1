package sizing

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// cgroup is the pod's cgroups on the host.
type cgroup struct {
	*hostcgroup.Cgroup
	// entered is closed when this process has moved into them or has failed to
	// (enterErr). The kernel may take longer for the move than a share and a
	// machine take to start, and they need not wait for it.
	entered  chan struct{}
	enterErr error
}

// await waits until this process has moved.
func (c *cgroup) await(ctx context.Context) error {
	select {
	case <-c.entered:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the move into the pod's cgroup: %w", context.Cause(ctx))
	}
}

// OpenCgroup moves this process to the cgroup that the engine made for it, if
// there is one, makes the pod's cgroups, and begins to move this process there,
// as far as it is elsewhere; Account
// waits for the move. record writes their directories to disk before they are
// made. CloseCgroup undoes it.
func (p *Pod) OpenCgroup(ctx context.Context, record func(dirs []string) error) error {
	if err := p.enterShimCgroup(); err != nil {
		return err
	}
	err := p.orWithoutCgroup(ctx, p.makeCgroup(ctx, record))
	if err != nil {
		err = errors.Join(err, p.leaveShimCgroup())
	}
	return err
}

// enterShimCgroup fails when this process cannot enter the engine's cgroup:
// unlike the pod's cgroups, this one was requested explicitly.
func (p *Pod) enterShimCgroup() error {
	if p.opts.ShimCgroup == "" {
		return nil
	}
	found, err := hostcgroup.OpenExisting(p.opts.CgroupRoot, p.opts.ShimCgroup)
	if err != nil {
		return fmt.Errorf("move the shim to %s (option ShimCgroup): %w", p.opts.ShimCgroup, err)
	}
	if err := found.Enter(); err != nil {
		return fmt.Errorf("move the shim to %s (option ShimCgroup): %w", p.opts.ShimCgroup, errors.Join(err, found.Leave()))
	}
	p.shimCgroup = found
	return nil
}

func (p *Pod) makeCgroup(ctx context.Context, record func(dirs []string) error) error {
	if err := p.checkHugepages(p.initial.MemoryMiB); err != nil {
		return err
	}
	made, err := hostcgroup.New(hostcgroup.Options{
		Root: p.opts.CgroupRoot, Path: p.opts.CgroupsPath, Name: p.opts.CgroupName,
		Only: p.only(), Shim: p.shimCgroup,
	})
	if err != nil {
		return err
	}
	if err := record(made.Dirs()); err != nil {
		return err
	}
	if err := made.Make(); err != nil {
		return errors.Join(err, made.Remove(context.WithoutCancel(ctx)))
	}
	c := &cgroup{Cgroup: made, entered: make(chan struct{})}
	go func() {
		defer close(c.entered)
		c.enterErr = made.Add(os.Getpid())
	}()
	p.cgroup = c
	return nil
}

// only reports whether the pod must be in its own cgroup: the configuration
// says so, and the engine named a place for one.
func (p *Pod) only() bool { return p.opts.Config.Runtime.SandboxCgroupOnly && p.opts.CgroupsPath != "" }

// orWithoutCgroup turns an error of the cgroups into a warning, unless the pod
// must be in its own cgroup: engines, too, run without cgroups on hosts that
// have none.
func (p *Pod) orWithoutCgroup(ctx context.Context, err error) error {
	if err == nil || p.only() {
		return err
	}
	log.G(ctx).WithError(err).Warn("the pod is not accounted to its cgroup on the host")
	return nil
}

// Account moves the machine and the share's daemon (its pid; 0 for none) into
// the pod's cgroups, and takes the engine's OOM score from both. It is called
// once, between the machine's launch and its first instruction, and before
// Connect. With v1 the guest's CPU time is at
// first charged to the overhead, which has the default weight (ChargeCPUs):
// with the minimum weight a guest would hardly boot on a busy host.
func (p *Pod) Account(ctx context.Context, vm hypervisor.VM, daemon int) error {
	p.vm = vm
	if hypervisor.OwnerOf(vm) != nil {
		p.sharedMiB = p.initial.MemoryMiB
	}
	p.scoreOOM(ctx)
	p.scoreDaemon(ctx, daemon)
	if p.cgroup == nil {
		return nil
	}
	if err := p.cgroup.await(ctx); err != nil {
		return err
	}
	err := p.cgroup.enterErr
	if err == nil && daemon != 0 {
		// The process that started it may not have been in the cgroup yet.
		err = p.cgroup.Add(daemon)
	}
	if err == nil {
		err = p.chargeVM(ctx, p.memoryMiB)
	}
	p.unaccounted = err != nil
	return p.orWithoutCgroup(ctx, err)
}

// ChargeCPUs charges the pod for the guest's CPU time from now on, under the
// pod's weight. It is called once, when the guest has booted.
func (p *Pod) ChargeCPUs(ctx context.Context) error {
	p.booted = true
	if p.cgroup == nil || p.unaccounted {
		return nil
	}
	return p.orWithoutCgroup(ctx, p.chargeVM(ctx, p.memoryMiB))
}

const (
	// vmOverheadMiB is room for what the VMM process needs beside the guest's
	// memory.
	vmOverheadMiB = 256
	// tcgMiB is room for everything that TCG keeps if the configuration does
	// not bound the guest's translated code (QEMU 7.2's tcg/region.c,
	// DEFAULT_CODE_GEN_BUFFER_SIZE). If it does, tcgTablesMiB is room for the
	// rest, mainly each vCPU's TLB (accel/tcg/cputlb.c).
	tcgMiB, tcgTablesMiB = 1024, 128
	// helpersMiB is room for the shim, with what the kernel caches of the files
	// it serves, an external virtiofsd and loggers: a shim takes 30 MiB, and
	// keeps below manager.heapBytes. In the pod's cgroup it is room for
	// kata-runtime's monitors.
	helpersMiB = 512
	// maxThreads is more threads than a shim, a QEMU with all its threads for
	// disks, and those helpers have.
	maxThreads = 8192
)

// bound limits each of the pod's cgroups to what a pod can need: the guest's
// memory, because the VM may be in any of them and the guest's pages are charged
// to the process that touches them first, and room for the VMM and the helpers.
// The bound is never lowered: with v1 that can fail.
func (p *Pod) bound(guestMiB uint64) error {
	most := (guestMiB + p.tablesMiB(guestMiB) + p.overheadMiB() + helpersMiB) << 20
	if most <= p.bounded {
		return nil
	}
	err := p.cgroup.SetBound(hostcgroup.Bound{Memory: most, Processes: maxThreads})
	if err == nil {
		p.bounded = most
	}
	return err
}

// boundAllocated is bound for memory that the VMM allocates when it is given to the
// guest. Other memory is used later, when it has been charged.
func (p *Pod) boundAllocated(ctx context.Context, guestMiB uint64) error {
	if p.cgroup == nil || p.unaccounted || !p.opts.Config.Hypervisor.Memory.Prealloc {
		return nil
	}
	return p.orWithoutCgroup(ctx, p.bound(guestMiB))
}

// tablesMiB returns the room for what the kernel keeps for each page of the
// guest's memory, which is charged too: eight bytes for a page of 4 KiB in the
// page tables of QEMU, KVM and each helper, and less for bitmaps. With
// virtio-mem some of that is for memory that may be plugged later.
func (p *Pod) tablesMiB(guestMiB uint64) uint64 {
	if p.opts.Config.Hypervisor.VirtioMem && !p.static() {
		guestMiB = max(guestMiB, p.most.MemoryMiB)
	}
	return guestMiB / 64
}

// overheadMiB returns the room for what the VMM process needs beside the guest's memory.
// A guest's first write to a page that its template does not have costs two: the kernel
// allocates the guest's and, in the shared file, one of zeros (mm/memory.c, do_cow_fault;
// mm/shmem.c, shmem_fault), and charges the process for both.
func (p *Pod) overheadMiB() uint64 { return p.sharedMiB + vmOverheadMiB + p.translationMiB() }

// translationMiB returns the room for what TCG keeps.
func (p *Pod) translationMiB() uint64 {
	code := p.opts.Config.Hypervisor.TranslationMiB
	switch {
	case p.opts.Accel != hypervisor.AccelTCG:
		return 0
	case code == 0:
		return tcgMiB
	}
	return tcgTablesMiB + code
}

// chargeVM moves the machine, whose guest has or is about to have that much
// memory, to the cgroup to which it is charged. It must be called again after
// vCPUs were added, and before memory is.
func (p *Pod) chargeVM(ctx context.Context, guestMiB uint64) error {
	limits, err := p.above.Limits()
	if err != nil && !p.only() {
		p.chargedMiB = 0                           // chargeRest or followLimit tries again
		return errors.Join(err, p.bound(guestMiB)) // the guest may get the memory all the same
	}
	if err != nil { // its place does not depend on them
		log.G(ctx).WithError(err).Warn("the pod's limits on the host are not known")
	}
	return p.chargeUnder(ctx, guestMiB, limits)
}

// chargeUnder is chargeVM with the host's limits.
func (p *Pod) chargeUnder(ctx context.Context, guestMiB uint64, limits hostcgroup.Limits) error {
	p.chargedMiB = 0 // after a failure chargeRest or followLimit tries again
	if err := p.bound(guestMiB); err != nil {
		return err
	}
	vm := hostcgroup.VM{PID: p.vm.PID(), Memory: (guestMiB + p.overheadMiB()) << 20, Threads: p.vmThreads(), Hugepages: p.hugepagesMiB() << 20}
	if p.booted {
		var err error
		if vm.VCPUs, _, err = p.vm.VCPUThreads(ctx); err != nil {
			return err
		}
	}
	short, err := p.cgroup.AddVM(vm, limits)
	if err != nil {
		return err
	}
	p.chargedMiB, p.chargedUnder = guestMiB, limits
	p.logShort(ctx, vm, short)
	return nil
}

func (p *Pod) logShort(ctx context.Context, vm hostcgroup.VM, short hostcgroup.Short) {
	if short.Memory > 0 {
		log.G(ctx).WithFields(log.Fields{"cgroup": p.cgroup.Path(), "limit": short.Memory, "vm": vm.Memory}).
			Info("the pod's memory limit leaves no room for the virtual machine, which is not accounted to the pod")
	}
	if short.Threads > 0 {
		log.G(ctx).WithFields(log.Fields{"cgroup": p.cgroup.Path(), "limit": short.Threads, "vm": vm.Threads}).
			Info("the pod's limit of threads leaves no room for the virtual machine, which is not accounted to the pod")
	}
	if short.Hugepages > 0 {
		log.G(ctx).WithFields(log.Fields{"cgroup": p.cgroup.Path(), "limit": vm.Hugepages - short.Hugepages, "vm": vm.Hugepages}).
			Info("the pod's limit of huge pages leaves no room for the virtual machine, which is not accounted to the pod")
	}
}

// chargeRest charges for the memory that the machine has got beyond what was asked
// for, and for what could not be charged earlier. After an error Watch tries again. The
// caller holds resizes.
func (p *Pod) chargeRest(ctx context.Context) error {
	if !p.owesCharge() {
		return nil
	}
	err := p.chargeVM(ctx, p.memoryMiB)
	if err != nil {
		p.mayShrink()
	}
	return p.orWithoutCgroup(ctx, err)
}

// owesCharge reports whether the machine has memory for which it is to be charged, and
// is not.
func (p *Pod) owesCharge() bool {
	return p.cgroup != nil && !p.unaccounted && p.memoryMiB > p.chargedMiB
}

// followLimit moves the machine out of the pod's cgroup if a limit that was lowered
// leaves no room for it, and back when there is room. It also charges for what could not
// be charged earlier. The caller holds resizes.
func (p *Pod) followLimit(ctx context.Context, host hostcgroup.Limits) error {
	if p.cgroup == nil || p.unaccounted || host == p.chargedUnder && !p.owesCharge() {
		return nil
	}
	return p.chargeUnder(ctx, p.memoryMiB, host)
}

// placePod sets the pod's cgroup to the containers' combined CPUs and shares,
// pins the vCPUs, and sets the machine's OOM score. The caller holds resizes.
func (p *Pod) placePod(ctx context.Context) error {
	p.scoreOOM(ctx)
	place := p.place()
	if err := p.placeCgroup(ctx, place); err != nil {
		return err
	}
	p.pin(ctx, place.CPUs)
	return nil
}

// place returns the containers' combined CPUs, shares and swap.
func (p *Pod) place() resource.Place {
	var own resource.Place
	var others []resource.Place
	for _, c := range p.living() {
		if c.ID == p.opts.SandboxID {
			own = c.place
			if c.Pause {
				own = own.OfPause()
			}
		} else {
			others = append(others, c.place)
		}
	}
	return resource.Together(own, others...)
}

// placeCgroup turns an error into a warning, unless the pod must be in its own
// cgroup: its containers run, though perhaps not on the right CPUs.
func (p *Pod) placeCgroup(ctx context.Context, place resource.Place) error {
	if p.cgroup == nil || p.placed == place.String() {
		return nil
	}
	p.placed = ""
	if err := p.cgroup.SetPlace(place); err != nil {
		if p.only() {
			return fmt.Errorf("give the pod's cgroup %v: %w", place, err)
		}
		log.G(ctx).WithError(err).Warnf("the pod's cgroup on the host does not have all of its containers' settings: %v", place)
	}
	p.placed = place.String()
	return nil
}
