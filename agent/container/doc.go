// Package container runs OCI containers in the guest. It is the only importer
// of runc's libcontainer, whose Go interface moves between minor versions.
//
// A Container is made with its init process forked and stopped just before
// exec(2); Start lets it continue. Exec starts further processes. The agent
// itself starts both kinds (packages spawn and rootfs; see birth), or
// libcontainer's stage does, for features such as user namespaces. The creator of a
// Process reaps it, exactly once.
//
//	Runtime.Create ──> Container (init waits) ──Start──> runs ──> Destroy
//	                       └──Exec──> Process ──Wait──> Exit
//
// Destroy, not the end of the last process, unmounts a container's file systems
// (mountNamespace). Host directories that several containers share are mounted
// once; the last Destroy unmounts them (podVolumes).
//
// The program must import package inside. As its stage libcontainer runs the
// program's own binary inside a container, which must not be able to change it
// (CVE-2019-5736). So libcontainer executes it through a read-only overlay mount
// of the file, which is cheap if the kernel has overlay.
//
// The OCI spec is the host's; adjust makes it fit the guest, where the pod is
// the machine: its network is the guest's own and its IPC and UTS namespaces
// are shared by all containers. The agent sets what belongs to them (sysctls,
// podsysctl.go, poduts.go). Limits that the guest's kernel does not enforce are left
// out and logged (fitResources). What containers protect from reclaim, their common
// parent protects too (protection).
//
// Containers cannot make AF_VSOCK sockets, which would reach the host
// (RefuseVsock).
//
// The host's hooks never reach the guest. The guest image may have hooks that run
// for every container (Hooks).
package container
