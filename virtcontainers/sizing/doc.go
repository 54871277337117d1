// Package sizing owns the size of a pod: of its machine (vCPUs and memory) and
// of its cgroups on the host (what is charged there, which CPUs it may use, the
// machine's OOM score).
//
//	New ──> Set ──> OpenCgroup ──> Account ──> Connect      CloseCgroup
//	 size    spec    before the     the machine  the agent
//	                 machine
//
//	         Admit             Update            Release
//	(none) ────────> admitted ────────> admitted ────────> (none)
//	        grow                grow, apply       Watch: shrink
//
// Start is the size with which a machine starts, with its pod or without one (start.go).
// The machine grows before a container is created or its limits are raised, and
// shrinks as far as it can after one has ended or its limits were lowered. With
// static_sandbox_resource_mgmt it keeps its initial size. For a template or a
// spare, StartPlain has it start with their size, and the first Admit grows it to
// the pod's (plain.go).
//
// A limit of the pod itself counts once, however many containers have it (whole.go).
//
// All containers together have the host's limits of memory and threads for the pod in
// the guest too (together.go, threads.go), and the pages of its limits of huge pages, if
// their specs have no limits themselves (podhugepages.go). What other programs do to the
// pod's cgroups, such as a new limit or controllers that are turned off, is found by
// looking (look.go).
//
// What a VMM says about the machine's size is believed within what was asked of it
// (most.go), and what a checkpoint's record says within what this host and its
// configuration allow (saved.go).
//
// One mutex serializes Admit, Update and Watch, and is held across QMP and agent
// calls. Release does not lock it: an exit never waits for a resize. LeaveCgroup
// starts the removal that CloseCgroup completes.
//
// Package sizing/resource has the arithmetic, as pure functions; package
// sizing/hostcgroup reads and writes the cgroup files.
package sizing
