// Declarations that spawn.go and spawn.c share.
#ifndef KATABOX_SPAWN_H
#define KATABOX_SPAWN_H

#include <stdint.h>
#include <sys/types.h>

// The steps of a start, in their order.
enum spawn_step {
	STEP_CLONE = 1,
	STEP_OOM_SCORE,
	STEP_RLIMITS,
	STEP_NAMESPACES,
	STEP_ROOT,
	STEP_STDIO,
	STEP_CLOSE,
	STEP_CLONE_PROCESS,
	STEP_SESSION,
	STEP_KEYRING,
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
	char *directory;
	int32_t umask; // -1: the agent's
	uint32_t uid, gid;
	uint32_t *groups;
	int32_t group_count;
	struct spawn_capabilities *capabilities; // NULL: unchanged
	int32_t no_new_privs;
	char **paths; // where the program is searched for, in this order
	char **argv, **envp;
};

struct spawn_result {
	int32_t process; // a PID, or 0; the caller waits for it
	int32_t step;    // the last one begun
	int32_t error;   // its errno, or 0
	int32_t path;    // the index in paths of the last one tried
};

// spawn starts a process. It returns when the program runs, or when a step has
// failed and the process has ended.
void spawn(const struct spawn_plan *plan, struct spawn_result *result);

#endif
