// Package factory keeps templates: saved machines, from which sandboxes start
// instead of booting. A template is a directory, named by a key. It is made under
// another name and renamed, and its files never change. It is removed when it
// is damaged, when its inputs have changed, or when it is not used any more (Expire).
//
//	DIR/                  root's; a new one has mode 0700
//	    lock              held while a template is made, by the process that is named in it
//	    making-XXXX/      a template that is being made, or removed; the next maker removes a
//	                      dead process's
//	    failed-KEY        why and when the last try failed: pods do not try again at once
//	    KEY/memory        the guest's memory, sparse
//	        state         the rest of the machine
//	        template.json checksums, time and inputs; its mtime is the last use
//	        lenders/      who has the memory sealed, for machines that share it: shims
//	                      (Lend), and a process that keeps it between pods (Keep)
//
// The key is a hash of everything that a machine's memory and state depend on (KeyOf):
// two sandboxes with the same key can have the same machine.
//
// Packages virtcontainers and hypervisor decide what is in a machine and save it.
package factory
