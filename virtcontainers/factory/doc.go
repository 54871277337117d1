// Package factory keeps templates: machines that have booted and were saved, from
// which sandboxes start. A template is a directory, named by a key; it is made
// aside and renamed, its contents never change, and it is removed when something about
// it is wrong, when what it was made of has changed, or when it is not used any more
// (Expire).
//
//	DIR/                  root's, 0700
//	    lock              held while a template is made, by the process that is named in it
//	    making-XXXX/      a template that is being made, or removed; the next maker removes a
//	                      dead process's
//	    failed-KEY        why the last try failed, and when: pods do not try again at once
//	    KEY/memory        the guest's memory, sparse
//	        state         all else of the machine
//	        template.json checksums, when and of what it was made; its mtime is the last use
//
// The key is a hash of all that a machine's memory and state depend on (KeyOf):
// two sandboxes with the same key could have the same machine.
//
// What is in a machine and how it is saved are virtcontainers' and hypervisor's.
package factory
