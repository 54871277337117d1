package api

// What one SetNetwork may hold; a request beyond that is refused. They are
// far above what a pod has, and keep a call below ttrpc's 4 MiB.
const (
	MaxInterfaces = 28
	MaxRoutes     = 4096
	MaxNeighbours = 4096
)
