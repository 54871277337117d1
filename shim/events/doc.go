// Package events publishes containers' events to the engine, in order.
//
// Publishing never blocks and never fails a task: events wait in one bounded
// queue, and one goroutine forwards them in order, retrying each until the engine
// has accepted it, for example while the engine restarts. An event that the engine
// has refused ten times, or as invalid, is dropped, so that it does not hold up the
// later ones; when the queue is full the new event is dropped. Both are logged
// as errors. An engine without an event address (iSulad) gets no events.
package events
