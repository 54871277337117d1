// Package apitest is what a host relies on when it talks to an agent, as a test.
// The agent's service passes it, over a container runtime of fake processes, and
// so does the guest in memory that the host's tests use: it cannot answer what
// an agent would not.
//
//	agent/service            ──┐
//	                           ├── apitest.Run: agent/api and the Task API
//	virtcontainers/fakeguest ──┘
package apitest
