package wire

// Op is a FUSE opcode (include/uapi/linux/fuse.h, enum fuse_opcode).
type Op uint32

// The opcodes that are answered; every other one gets ENOSYS.
const (
	Lookup        Op = 1
	Forget        Op = 2
	Getattr       Op = 3
	Setattr       Op = 4
	Readlink      Op = 5
	Symlink       Op = 6
	Mknod         Op = 8
	Mkdir         Op = 9
	Unlink        Op = 10
	Rmdir         Op = 11
	Rename        Op = 12
	Link          Op = 13
	Open          Op = 14
	Read          Op = 15
	Write         Op = 16
	Statfs        Op = 17
	Release       Op = 18
	Fsync         Op = 20
	Setxattr      Op = 21
	Getxattr      Op = 22
	Listxattr     Op = 23
	Removexattr   Op = 24
	Flush         Op = 25
	Init          Op = 26
	Opendir       Op = 27
	Readdir       Op = 28
	Releasedir    Op = 29
	Fsyncdir      Op = 30
	Create        Op = 35
	Interrupt     Op = 36
	Destroy       Op = 38
	BatchForget   Op = 42
	Fallocate     Op = 43
	Readdirplus   Op = 44
	Rename2       Op = 45
	Lseek         Op = 46
	CopyFileRange Op = 47
	Syncfs        Op = 50
	Tmpfile       Op = 51
	Statx         Op = 52

	// MaxOp is larger than all of them.
	MaxOp = 64
)

// HasReply reports whether a request of this kind is answered at all.
func (o Op) HasReply() bool { return o != Forget && o != BatchForget && o != Interrupt }
