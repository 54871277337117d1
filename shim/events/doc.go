// Package events sends what happens to containers to the engine, in order.
//
// Publishing never blocks and never fails a task: events wait in one bounded
// queue, and one goroutine forwards them, each until the engine has taken it.
// While the engine restarts it tries again; when the queue is full the new
// event is dropped, with an error in the log. An engine without an event
// address (iSulad) gets none.
package events
