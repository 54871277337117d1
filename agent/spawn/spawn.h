// Declarations that spawn.go and spawn.c share.
#ifndef KATABOX_SPAWN_H
#define KATABOX_SPAWN_H

#include <stdint.h>
#include <sys/types.h>

// The steps of a start, in their order.
enum spawn_step {
	STEP_CLONE = 1,
	STEP_CGROUP_NAMESPACE,
	STEP_OOM_SCORE,
	STEP_RLIMITS,
	STEP_MOUNT,
	STEP_MOUNTED,
	STEP_RECEIVE,
	STEP_ENTER,
	STEP_NAMESPACES,
	STEP_ROOT,
	STEP_STDIO,
	STEP_CLOSE,
	STEP_CLONE_PROCESS,
	STEP_SESSION,
	STEP_KEYRING,
	STEP_KEYRING_PERMISSIONS,
	STEP_TERMINAL,
	STEP_OWN_STDIO,
	STEP_DIRECTORY,
	STEP_BOUNDING,
	STEP_KEEP_CAPS,
	STEP_GROUPS,
	STEP_GID,
	STEP_UID,
	STEP_DIRECTORY_OUTSIDE,
	STEP_CAPABILITIES,
	STEP_AMBIENT,
	STEP_NO_NEW_PRIVS,
	STEP_FIND,
	STEP_ACCESS,
	STEP_RELATIVE,
	STEP_FOUND,
	STEP_EXECUTE,
};

struct spawn_rlimit {
	int32_t resource;
	uint64_t soft, hard;
};

struct spawn_capabilities {
	uint64_t bounding, effective, permitted, inheritable, ambient;
	int32_t last; // the last one that the kernel knows
};

// The process to start. Only pointers whose comments say so may be NULL; lists
// of strings end with NULL.
struct spawn_plan {
	int32_t target;     // a pidfd; its namespaces are joined
	uint64_t namespaces; // which of them: CLONE_NEW*
	int32_t cgroup;     // a directory of cgroup v2, or -1
	int32_t stdio[3];   // none of them below 3
	int32_t terminal;   // whether stdio[0] becomes the controlling terminal
	char *oom_score_adj; // NULL: the agent's
	struct spawn_rlimit *rlimits;
	int32_t rlimit_count;
	char *keyring; // the session keyring's name
	int32_t new_keyring; // whether its user may search it
	char *directory;
	int32_t umask; // -1: the agent's
	uint32_t uid, gid;
	uint32_t *groups;
	int32_t group_count;
	struct spawn_capabilities *capabilities; // NULL: unchanged
	int32_t no_new_privs;
	char **paths; // where the program is searched for, in this order
	int32_t absolute; // whether a program at a relative one of them is refused
	char **argv, **envp;
};

struct spawn_result {
	int32_t process; // a PID, or 0; the caller waits for it
	int32_t step;    // the last one begun
	int32_t error;   // its errno, or 0
	int32_t path;    // the index of the last one tried in paths, or in an init's mounts
};

// spawn starts a process. It returns when the program runs, or when a step has
// failed and the process has ended.
void spawn(const struct spawn_plan *plan, struct spawn_result *result);

// A mount as mount(2) has it.
struct spawn_mount {
	char *source, *target, *type, *data;
	uint64_t flags;
};

// The first process of a container. It has a copy of the agent's memory, and ends
// when the other end of its control socket is closed.
struct spawn_init {
	struct spawn_plan plan; // target, namespaces and stdio are not used
	int32_t control;        // a socket of type SOCK_SEQPACKET, above 2
	int32_t new_pid;        // whether it gets a PID namespace of its own
	struct spawn_mount *mounts;
	int32_t mount_count;
	char **home;   // the place in envp for a HOME, or NULL
	char **errors; // texts of errno values
	int32_t error_count;
};

// The size of a HOME=..., with its NUL.
enum { SPAWN_HOME_SIZE = 16384 };

// spawn_init starts an init in the calling thread's namespaces and returns its PID,
// or -1 with errno. It sends a spawn_result when it waits for an order, when it
// is about to execute its program, and when a step has failed. An order is a packet
// whose first byte means nothing:
//
//	mounts ──STEP_MOUNTED──> order with stdio and the root as files, and a HOME=...
//	──STEP_FOUND──> order to execute ──STEP_EXECUTE──> execve(2)
pid_t spawn_init(const struct spawn_init *init);

#endif
