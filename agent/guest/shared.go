package guest

import "math"

// sharedLimits are limits, by their files below /proc/sys, on what the kernel gives to a
// user. The agent and the containers' root are one user, and a container needs no privilege
// to use up what the agent needs to serve a connection (the watches) or to make a container
// (the namespaces). By themselves they follow the memory, of which a guest has little. The
// kernel counts what a container has as its memory.
//
// The watches and marks of files are the containers' alone. The kernel would have as many
// with 130 GiB of memory, and does not choose more.
var sharedLimits = map[string]uint64{
	"fs/epoll/max_user_watches": 1 << 31, // more than there is memory for (fs/eventpoll.c)

	"fs/inotify/max_user_watches": maxWatches, // fs/notify/inotify/inotify_user.c
	"fs/fanotify/max_user_marks":  maxWatches, // fs/notify/fanotify/fanotify_user.c

	"user/max_cgroup_namespaces": maxNamespaces,
	"user/max_ipc_namespaces":    maxNamespaces,
	"user/max_mnt_namespaces":    maxNamespaces,
	"user/max_net_namespaces":    maxNamespaces,
	"user/max_pid_namespaces":    maxNamespaces,
	"user/max_time_namespaces":   maxNamespaces,
	"user/max_user_namespaces":   maxNamespaces,
	"user/max_uts_namespaces":    maxNamespaces,
}

// maxNamespaces is the most that the kernel takes (kernel/ucount.c, UCOUNT_ENTRY).
const maxNamespaces = math.MaxInt32

const maxWatches = 1 << 20

// removeSharedLimits removes them. proc is where procfs is mounted.
func removeSharedLimits(proc string) error { return setSysctls(proc, sharedLimits) }
