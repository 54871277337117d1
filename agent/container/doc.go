// Package container runs OCI containers in the guest. It is the only importer
// of runc's libcontainer, whose Go interface moves between minor versions.
//
// A Container is made with its init process forked and stopped just before
// exec(2); Start lets it continue. Further processes start with Exec. Both start
// from the agent itself (packages spawn and rootfs; see birth). What only
// libcontainer's stage can do, such as a user namespace, starts by that. Each
// Process is waited for exactly once, by its creator.
//
//	Runtime.Create ──> Container (init waits) ──Start──> runs ──> Destroy
//	                       └──Exec──> Process ──Wait──> Exit
//
// A container's file systems are unmounted by Destroy, and not when its last process
// ends (mountNamespace). Directories of the host that several containers have in common
// are mounted once, and unmounted by the Destroy of the last one (podVolumes).
//
// The program must import package inside. For its stage libcontainer runs the program's own
// binary inside a container, so a container must be unable to change it
// (CVE-2019-5736): libcontainer executes it through a read-only overlay mount
// of its file, which is cheap if the kernel has overlay.
//
// The OCI spec is the host's; Adjust makes it fit the guest, where the pod is
// the machine: its network is the guest's own and its IPC and UTS namespaces
// are shared by all containers. Of its limits those are set that the guest's
// kernel enforces (fitResources); what is lost is logged.
//
// Containers get no AF_VSOCK sockets, by which they would reach the host
// (RefuseVsock).
//
// The host's hooks never reach the guest. The guest's own are programs of its
// image that run for every container (Hooks).
package container
