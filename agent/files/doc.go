// Package files changes files in the guest as the host says, below one
// directory, and reads their ends: what no shared file system brings is copied
// there.
//
// What is in that directory is not the agent's alone: containers have parts of
// it mounted and may write there at any time. So a path is never walked by its
// name from the top; the directory above what is changed is opened first, by a
// way on which the kernel follows no symbolic link (openat2(2)), and what is
// changed is a single name in it.
//
// A file comes in parts. Until its last one it has no name:
//
//	first part ──> open (O_TMPFILE) ──part──> open ──last part──> linked, renamed
//	                    └── another change of that path, too many, too old ──> (gone)
//
// With the last part of one that is to stay the same inode, its content is
// written into the file that is there instead.
package files
