package run

// LifecycleNotes asks a model for notes of messages that are about to leave. It quotes the conversation and does not carry it.
const LifecycleNotes Lifecycle = "notes"
