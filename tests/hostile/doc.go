// Package hostile runs pods with malicious guests, and containers that attack
// their guest. The guest is a real machine with tests/hostile/liar as its
// agent. Whatever it does, the engine gets one answer to each call and one exit
// of each container, the pod can be removed without a trace, the shim stays
// small, and another pod keeps working.
package hostile
