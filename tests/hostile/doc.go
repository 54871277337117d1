// Package hostile runs pods whose guests deceive their host, and containers
// that attack their guest. The guest is a real machine with tests/hostile/liar
// as its agent. Whatever it does: the engine has one answer to each call and
// one exit for each container, the pod can be removed, nothing of it stays, the
// shim stays small, and another pod works meanwhile.
package hostile
