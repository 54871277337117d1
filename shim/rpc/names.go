package rpc

// The shim's own service, on the socket of its task API. Engines do not call it.
const (
	ShimService = "katabox.shim.v1.Shim"
	// ContainersMethod returns the ids of the containers, as a ListValue.
	ContainersMethod = "Containers"
	// TimelineMethod returns how the sandbox and its containers started, as a
	// BytesValue of JSON (timeline.Parse).
	TimelineMethod = "Timeline"
	// EndingMethod returns whether the shim has begun to end, as a BoolValue.
	EndingMethod = "Ending"
)
