// Package files changes files in the guest, below one directory, on the host's
// request, and reads their ends: it receives the host's copies of files that
// are not shared.
//
// The directory is not private to the agent: containers have parts of it
// mounted and may write there at any time. So paths are never used directly;
// the parent directory is opened first, without following symbolic links
// (openat2(2)), and each change affects a single name in it.
//
// A file comes in parts. Until its last one it has no name:
//
//	first part ──> open (O_TMPFILE) ──part──> open ──last part──> linked, renamed
//	                    └── another change of that path, too many, too old ──> (gone)
//
// If the inode must stay the same, the content is instead written into the
// existing file when the last part has arrived.
package files
