// Package journal keeps the latest lines of the shim's log in memory, for the
// operator who asks the shim for them (shim/management, kata-runtime log): the
// engine may have put its own copy anywhere, or nowhere.
//
//	logrus ── Fire ──┬── lines of the shim    (64 KiB) ──┬── After: one list, by number
//	                 └── foreign lines        (64 KiB) ──┘
//
// Foreign lines are those of the guest's agent, its console, QEMU and an external
// virtiofsd, and ttrpc's. They have their own room, so that a guest cannot push out the
// shim's lines. The lines of a pod that has ended are gone.
package journal
