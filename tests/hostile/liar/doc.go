// Command liar is a guest's PID 1 that deceives its host, for tests/hostile: it
// is the agent, with a lie put between the agent's answers and the host. The
// kernel's command line says which:
//
//	katabox.lie=ignore-kill      Kill is answered, and does nothing
//	katabox.lie=hang-kill        Kill is not answered
//	katabox.lie=drop-exec-exits  exits of execs are not reported
//	katabox.lie=hang-streams     streams of execs are not answered
//	katabox.lie=hang             nothing about containers is answered once one runs
//	katabox.lie=silent           Hello is not answered
//	katabox.lie=forge-exits      exits of other containers, and of one that runs, many times
//	katabox.lie=flood-events     a million events once a container runs
//	katabox.lie=huge-stats       counters of almost 4 MiB
//	katabox.lie=huge-pids        sixty thousand processes with details
//	katabox.lie=huge-errors      an error of 3 MiB for each exec
//	katabox.lie=endless-output   an exit promises 1 TiB of output, which comes a byte at a time
//	katabox.lie=flood-log        the agent's log without end
//	katabox.lie=flood-console    64 MiB to the console
//	katabox.lie=connections      20,000 connections to ports of the host
//
// Without a lie it is the agent. How often a flood has been told is in
// /proc/sys/kernel/poweroff_cmd, a text that is the whole guest's and that
// containers can read.
package main
