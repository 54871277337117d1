package api

// ProtocolVersion is the version of the conversation described in doc.go. It
// rises when a change would make an older peer misunderstand; what can be
// added without that is a feature.
const ProtocolVersion = 3

// ContainerConfigTypeURL is the type URL under which a ContainerConfig
// travels in CreateTaskRequest.options.
const ContainerConfigTypeURL = "katabox.agent.v1.ContainerConfig"
