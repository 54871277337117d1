// Command suites runs the test suites of a tier, two side by side, and says at
// the end what passed, what failed and what needed a second try.
//
// A suite is a row of the table (table.go): packages for "go test", or a
// command. It names the suites that must have passed before it (builds are
// suites too) and the host resources that no two suites may use simultaneously.
//
//	waiting ──(needs passed, resources and a lane free)──> running ──> done
//	   └──(a need failed)──> not run                                    │
//	                                     faults, once all are done: second try
//
// A test that fails is run once more, by itself, when everything else is done.
// If it then passes it counts as passed and is listed with its first output.
// Three things are final immediately: data races, build errors, and more than
// maxSecondTries faults in one run. See docs/adr/0028.
//
// The last line of the output is "N passed, N failed, N skipped".
package main
