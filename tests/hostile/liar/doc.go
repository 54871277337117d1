// Command liar is a guest's PID 1 that deceives its host, for tests/hostile: it
// is the agent, with a lie put between the agent's answers and the host. The
// kernel's command line says which:
//
//	katabox.lie=ignore-kill      Kill is answered, and does nothing
//	katabox.lie=hang-kill        Kill is not answered
//	katabox.lie=hang-delete      Delete is not answered
//	katabox.lie=drop-exec-exits  exits of execs are not reported
//	katabox.lie=hang-streams     streams of execs are not answered
//	katabox.lie=hang             nothing about containers is answered once one runs
//	katabox.lie=silent           Hello is not answered
//	katabox.lie=silent-key       the host's key is not answered
//	katabox.lie=refuse-key       the host's key is refused
//	katabox.lie=odd-key          the host's key is answered by a number without a meaning
//	katabox.lie=forge-exits      exits of containers that are other pods', or do not exist
//	katabox.lie=early-exits      exits of a container that runs, 10,000 times
//	katabox.lie=repeat-exits     each exit 10,000 times, with different codes
//	katabox.lie=flood-events     a million events once a container runs
//	katabox.lie=huge-stats       counters of almost 4 MiB
//	katabox.lie=huge-pids        sixty thousand processes with details
//	katabox.lie=huge-errors      an error of 3 MiB for each exec
//	katabox.lie=endless-output   an exit promises 1 TiB of output, which comes a byte at a time
//	katabox.lie=no-output        an exit promises no output, though there is some
//	katabox.lie=rpc-LENGTH       ttrpc messages with a false length, once a container runs: LENGTH is
//	                             short (half of it), long (1000 bytes more), zero or huge (4 GiB)
//	katabox.lie=stream-LENGTH    the same for the first frame of stdio connections
//	katabox.lie=log-lines        log lines of 1 MiB, without text, of zeros, and of JSON without end
//	katabox.lie=flood-log        the agent's log without end
//	katabox.lie=flood-console    64 MiB to the console
//	katabox.lie=connections      100,000 connections to ports of the host
//
// Without a lie it is the agent. How often a flood has been told is in
// /proc/sys/kernel/poweroff_cmd, a text that is the whole guest's and that
// containers can read.
package main
