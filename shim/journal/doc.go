// Package journal keeps the latest lines of the shim's log in memory, for operators
// (shim/management, kata-runtime log): the engine may have stored its own copy
// anywhere, or nowhere.
//
//	logrus ── Fire ──┬── lines of the shim    (64 KiB) ──┬── After: one list, by number
//	                 └── foreign lines        (64 KiB) ──┘
//
// Foreign lines are those of the guest's agent, its console, QEMU, an external
// virtiofsd, and ttrpc. They have their own buffer, so that a guest cannot push out
// the shim's lines. The journal ends with the shim.
package journal
