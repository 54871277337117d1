package events

// Topics of task events, as containerd's runtime names them.
const (
	TopicCreate      = "/tasks/create"
	TopicStart       = "/tasks/start"
	TopicOOM         = "/tasks/oom"
	TopicExit        = "/tasks/exit"
	TopicDelete      = "/tasks/delete"
	TopicExecAdded   = "/tasks/exec-added"
	TopicExecStarted = "/tasks/exec-started"
	TopicPaused      = "/tasks/paused"
	TopicResumed     = "/tasks/resumed"
)
