// Package volume decides how each of a container's volumes gets into the guest:
// through the share, as a copy, as a disk, or not at all because it is memory
// that the guest provides. Kubernetes tells a runtime little about a volume:
// its kind shows in its path below the kubelet's directory, and in what the
// kubelet has mounted there:
//
//	pods/<pod>/volumes/kubernetes.io~<plugin>/<volume>[/...]
//	pods/<pod>/volume-subpaths/<volume>/<container>/<index>   (a subPath: bind mount of a part)
//
//	bind ──> a UNIX socket, or of type "uds"? ──yes──> Socket
//	          │no
//	          v
//	         assigned to it (package direct)? ──yes──> Direct
//	          │no
//	          v
//	         a disk in the host's /dev (belowdev.go)? ──yes──> Device
//	          │no
//	          v
//	         emptyDir? ──yes──> a tmpfs ──> Memory, a hugetlbfs ──> Hugepages, else Shared or Image
//	          │no
//	          v
//	         secret, configMap, projected, downwardAPI; or there is no share
//	          │no        └──yes──> small enough? ──yes──> Copied, else Shared or an error
//	          v
//	         Shared
//
// (Kubernetes, pkg/kubelet/kubelet_getters.go and pkg/volume/util/subpath.)
// The package reads the host's files and mounts nothing; only MakeImage writes,
// one file. The pod's volumes in the guest are package guestfs' concern.
package volume
