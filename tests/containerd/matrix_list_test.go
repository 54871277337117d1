package containerd

// known are the intended differences. docs/compat.md has the same list.
var known = []difference{
	{
		rows: []string{
			"init: * Start*", "init: * Delete*", "init: * Pause*", "init: * Resume*", "init: * Exec", "init: stopped Update*",
			"killed before start: Start", "ended before start: Start", "killed while paused: delete",
			"exec: running Delete*", "exec: stopped ResizePty*",
			"exec while paused: add", "exec while paused: delete a running one",
		},
		runc: "Unknown", kata: "FailedPrecondition",
		why: "the call is not possible in this state: Katabox returns a code that says so, runc's shim only a message",
	},
	{
		rows: []string{"exec in a created container: run after the end", "container without a pod: exec after"},
		runc: "Exec Unknown", kata: "Exec FailedPrecondition",
		why: "as above",
	},
	{
		rows: []string{"execs of an init that exits: Start of one never started"},
		runc: "Unknown", kata: "FailedPrecondition", release: "1.6",
		why: "as above; the runc shim of later containerds returns that code",
	},
	{
		rows: []string{"exec: no spec", "update: without resources"},
		runc: "Unknown", kata: "InvalidArgument",
		why: "a required field is missing; Katabox returns a specific code",
	},
	{
		rows: []string{"same id: create"},
		runc: "Unknown", kata: "AlreadyExists",
		why: "a specific code. The test calls the shim directly: containerd would refuse the id itself",
	},
	{
		rows: []string{"same id: create from an empty bundle"},
		runc: "Unknown", kata: "NotFound",
		why: "a specific code: the bundle has no config.json",
	},
	{
		rows: []string{"same id: create with an odd id"},
		runc: "Unknown", kata: "InvalidArgument",
		why: "a specific code",
	},
	{
		rows: []string{"exec: * CloseIO"},
		runc: "Unknown", kata: "NotFound",
		why: "the exec does not exist; Katabox returns the same code as for every other method",
	},
	{
		rows: []string{"init: * Checkpoint with bad options"},
		runc: "Unknown", kata: "InvalidArgument", release: "2.4",
		why: "a specific code",
	},
	{
		rows: []string{"init: * Checkpoint with bad options"},
		runc: "FailedPrecondition", kata: "InvalidArgument", release: "1.6",
		why: "as above",
	},
	{
		rows: []string{"init: stopped Kill 0 all*"},
		runc: "ok", kata: "NotFound",
		why: "a container that has ended cannot be signalled, with or without `all`; runc 1.1 only checks that its cgroup exists",
	},
	{
		rows: []string{"frozen: frozen after kill"},
		runc: "false", kata: "true",
		why: "Katabox keeps a paused container paused; runc 1.1 thaws it to signal all its processes, and its shim does not notice",
	},
	{
		rows: []string{"frozen: resume"},
		runc: "Unknown", kata: "ok",
		why: "follows from the row above",
	},
	{
		rows: []string{"init: stopped Pids"},
		runc: "0 processes, execs []", kata: "1 processes, execs []",
		why: "when containerd 2.x restarts, it drops a task without processes, and an exit that it has not seen yet would be lost",
	},
	{
		rows: []string{"init: stopped Pids by containerd"},
		runc: "0 processes", kata: "1 processes",
		why: "follows from the row above",
	},
	{
		rows: []string{"delete before start: delete"},
		runc: "exit 0, time false", kata: "exit 137, time true",
		why: "Katabox kills the init, which waits for its start, and returns the same exit as the event; runc's shim answers before it knows the exit",
	},
	{
		rows: []string{"no program: exec State"},
		runc: "CREATED, pid false", kata: "STOPPED, pid true, exit 255, time true",
		why: "an exec that failed to start counts as ended: Wait returns, and it cannot be started again",
	},
	{
		rows: []string{"no program: exec Kill 0"},
		runc: "FailedPrecondition", kata: "NotFound",
		why: "follows from the row above",
	},
	{
		rows: []string{"no program: exec Delete"},
		runc: "exit 0, time false", kata: "exit 255, time true",
		why: "follows from the row above; exit code 0 would mean success",
	},
	{
		rows: []string{"terminal: exec"},
		runc: `3 "stty: standard input\r\n"`, kata: `3 "25 80\r\n"`,
		why: "an exec starts with the terminal size that was set before; runc's shim ignores that size",
	},
	{
		rows: []string{"pause killed: the other"},
		runc: "runs on, killed 137", kata: `exit 137 ""`,
		why: "when a pod's first container ends, its machine ends, and with it all other containers; their exits are reported first",
	},
	{
		rows: []string{"exec of an odd id: add"},
		runc: "ok", kata: "InvalidArgument",
		why: "ids are used as file names on the host and in the guest, so they must not contain a slash; no engine makes such ids",
	},
	{
		rows: []string{"stdin: CloseIO while the engine holds its end"},
		runc: "runs on, killed 137", kata: `exit 0 "end\n"`,
		why: "Katabox passes on what was written and then ends the input; runc's shim closes only its own end, so the process waits until the engine closes its end too",
	},
	{
		rows: []string{"stdin: end of a terminal's"},
		runc: `exit 129 ""`, kata: "runs on, killed 137",
		why: "after CloseIO and the end of the engine's input runc's shim hangs up the terminal; with Katabox its output goes on. Engines do not call CloseIO for containers' terminals; nerdctl does for an exec's",
	},
}
