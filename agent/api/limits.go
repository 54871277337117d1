package api

// The limits of one SetNetwork; a larger request is refused. They are far above
// what a pod has, and keep a call below ttrpc's 4 MiB.
const (
	MaxInterfaces = 28
	// MaxAddresses is for each interface.
	MaxAddresses  = 1024
	MaxRoutes     = 4096
	MaxNeighbours = 4096
	MaxRules      = 1024
	// MaxDNSEntries is for each of a DNS message's lists; an entry has 255
	// bytes at most.
	MaxDNSEntries = 64
)

// MaxChangeFiles is the encoded length of the longest ChangeFilesRequest, in
// bytes. It is below ttrpc's 4 MiB.
const MaxChangeFiles = 2 << 20

// MaxReadFile is how much one ReadFile returns, in bytes: what Kubernetes reads of a
// termination message (pkg/kubelet/container, MaxContainerTerminationMessageLength).
const MaxReadFile = 4096

// The limits of one Timeline; anything beyond is dropped.
const (
	MaxSpans = 512
	// MaxSpanName is in bytes.
	MaxSpanName = 64
)

// MaxProcFile is how much of each file one Metrics returns, in bytes: several
// times the size of /proc/vmstat.
const MaxProcFile = 32 << 10

// MaxIPTables is the length of the longest text of rules that one GetIPTables or
// SetIPTables carries, in bytes: some ten thousand rules.
const MaxIPTables = 1 << 20

// EntropyBytes is the length of the requests' entropy (SetupSandbox, Rejoin and
// Prepare): twice the key size of the Linux kernel's generator.
const EntropyBytes = 64

// MaxRenamedContainers is how many containers one Rejoin renames at most.
const MaxRenamedContainers = 1024
