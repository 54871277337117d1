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
		why: "the call does not fit the state; runc's shim says so in words only, Katabox by the error's kind too",
	},
	{
		rows: []string{"exec in a created container: run after the end", "container without a pod: exec after"},
		runc: "Exec Unknown", kata: "Exec FailedPrecondition",
		why: "as above",
	},
	{
		rows: []string{"execs of an init that exits: Start of one never started"},
		runc: "Unknown", kata: "FailedPrecondition", release: "1.6",
		why: "as above; runc's shim of later containerds has the kind here",
	},
	{
		rows: []string{"exec: no spec", "update: without resources"},
		runc: "Unknown", kata: "InvalidArgument",
		why: "the request lacks what it is about; the error has a kind",
	},
	{
		rows: []string{"same id: create"},
		runc: "Unknown", kata: "AlreadyExists",
		why: "the error has a kind (asked of the shim itself: containerd refuses the id before)",
	},
	{
		rows: []string{"same id: create from an empty bundle"},
		runc: "Unknown", kata: "NotFound",
		why: "the error has a kind: the bundle's config.json is not there",
	},
	{
		rows: []string{"same id: create with an odd id"},
		runc: "Unknown", kata: "InvalidArgument",
		why: "the error has a kind",
	},
	{
		rows: []string{"exec: * CloseIO"},
		runc: "Unknown", kata: "NotFound",
		why: "the exec is not there; the error has a kind, as for every other method",
	},
	{
		rows: []string{"init: * Checkpoint"},
		runc: "Unknown", kata: "Unimplemented",
		why: "a process of a guest cannot be saved alone; runc tries, and fails without CRIU or in the wrong state",
	},
	{
		rows: []string{"init: stopped Kill 0 all*"},
		runc: "ok", kata: "NotFound",
		why: "what has ended takes no signal, `all` or not; runc 1.1 asks only whether the cgroup is there",
	},
	{
		rows: []string{"frozen: frozen after kill"},
		runc: "false", kata: "true",
		why: "runc 1.1 thaws a paused container when it signals all its processes, and its shim does not know; a paused container stays paused here",
	},
	{
		rows: []string{"frozen: resume"},
		runc: "Unknown", kata: "ok",
		why: "follows from the row above",
	},
	{
		rows: []string{"init: stopped Pids"},
		runc: "0 processes, execs []", kata: "1 processes, execs []",
		why: "containerd 2.x, when it starts again, discards a task without processes, and with it an exit that was not reported",
	},
	{
		rows: []string{"init: stopped Pids by containerd"},
		runc: "0 processes", kata: "1 processes",
		why: "follows from the row above",
	},
	{
		rows: []string{"delete before start: delete"},
		runc: "exit 0, time false", kata: "exit 137, time true",
		why: "the waiting init is killed, and the answer is the exit that its event tells; runc's shim answers before it knows",
	},
	{
		rows: []string{"no program: exec State"},
		runc: "CREATED, pid false", kata: "STOPPED, pid true, exit 255, time true",
		why: "an exec whose start failed has ended: a Wait for it returns, and it cannot be started again",
	},
	{
		rows: []string{"no program: exec Kill 0"},
		runc: "FailedPrecondition", kata: "NotFound",
		why: "follows from the row above",
	},
	{
		rows: []string{"no program: exec Delete"},
		runc: "exit 0, time false", kata: "exit 255, time true",
		why: "follows from the row above; 0 would mean success",
	},
	{
		rows: []string{"terminal: exec"},
		runc: `3 "stty: standard input\r\n"`, kata: `3 "25 80\r\n"`,
		why: "a size that is set before an exec is started is the one it starts with; runc's shim drops it",
	},
	{
		rows: []string{"pause killed: the other"},
		runc: "runs on, killed 137", kata: `exit 137 ""`,
		why: "the end of a pod's first container is the end of its machine, and so of every container in it; each has its own exit before",
	},
	{
		rows: []string{"exec of an odd id: add"},
		runc: "ok", kata: "InvalidArgument",
		why: "ids become names of files in host and guest, so they may hold no slash; engines make no such ids",
	},
	{
		rows: []string{"stdin: CloseIO while the engine holds its end"},
		runc: "runs on, killed 137", kata: `exit 0 "end\n"`,
		why: "CloseIO passes on what was written and then the end of input; runc's shim closes its own end only, so the process waits until the engine closes too",
	},
}
