// Package apitest is a test of what a host relies on when it talks to an agent.
// The agent's service passes it, over a container runtime of fake processes,
// and so does the in-memory guest of the host's tests, which therefore answers
// as an agent would.
//
//	agent/service            ──┐
//	                           ├── apitest.Run: agent/api and the Task API
//	virtcontainers/fakeguest ──┘
package apitest
