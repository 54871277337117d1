// Package isulad is the integration suite for iSulad. The small engine in
// package engine makes iSulad's calls to the real shim, with real virtual
// machines.
//
// TestPoint1 to TestPoint10 are the ten requirements that a shim written for
// containerd alone does not meet. The other tests play iSulad's sequences of
// calls, and check what must hold when the shim dies. What is peculiar to
// iSulad, and where it is tested:
//
//	start   double dashes, no address, no events, no stdin     every test, Point2
//	        a bare address, sockets outside the long bundle    Point1
//	        the daemon keeps none of the engine's pipes        Point2
//	        a pod's container gets the sandbox's shim          SeedsWithFullID
//	        the sandbox by a prefix of its id, or unknown      SeedsWithShortIDStopSandboxFirst, UnknownSandbox
//	        again, in a bundle with an old address and log     RunInForegroundAndStartAgain
//	calls   a connection for each container, never closed      SeedsWithFullID (all tests)
//	        Create without root file system and options        Point3
//	        Start's pid lives, and stays the same              Point6, EngineRestart
//	        Kill(0) checks that it is alive                    Point4
//	        Shutdown after every Delete                        Point5
//	        Pids is never empty, Stats are cgroup v1's         Point10
//	        execs without user and capabilities, never deleted Point10, Exec
//	        SIGKILL, then Resume, of a paused one              PauseAndKill
//	stdio   FIFOs opened once, then unlinked                   Point9
//	        both outputs stay open until the end               Point9
//	        a terminal without FIFOs, or with a stderr         Point7, Point8
//	        output without a reader is dropped                 EngineRestart
//	spec    the size among the options of /dev/shm's bind,
//	        swappiness -1, devices -1, PATH twice              every test (engine/spec.go), DevShm
//	        the host's network by path                         HostNetwork
//	        the sandbox's namespaces under its pid             CRIContainer
//	        the least shares for CRI's pause                   SharesOfThePauseContainer
//	        a hostname for each container                      HostnameOfAServiceContainer
//	ends    exit, stop, rm -f, their calls in order            SeedsWithFullID, StopSignalIsTheContainersToHandle
//	        the sandbox first                                  SeedsWithShortIDStopSandboxFirst
//	        Create or Start that fails                         CreateFails, StartFails, and both InPod
//	        a shim that is killed, also during Create          ShimKilled, ShimKilledDuringCreate
//	        an engine that starts again: State, second Waits   EngineRestart
//	        engines before v2.1.3, which read the exit's FIFO  OldEngineReadsTheExitFIFO
//
// Most tests add containers to one shared pod; those about the life of a pod
// boot their own. The suite needs root, and what "make build guest-image" makes.
package isulad
