package api

// ProtocolVersion is the version of the conversation described in doc.go. It is
// incremented when an older peer would misunderstand a change; what can be
// added without that is a feature.
const ProtocolVersion = 6

// ContainerConfigTypeURL is the type URL of a ContainerConfig in
// CreateTaskRequest.options.
const ContainerConfigTypeURL = "katabox.agent.v1.ContainerConfig"
