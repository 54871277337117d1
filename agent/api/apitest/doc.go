// Package apitest tests the behaviour of an agent that the host relies on. Both the
// agent's service, with a container runtime of fake processes, and the in-memory
// guest of the host's tests must pass it. So the latter answers as an agent does.
//
//	agent/service            ──┐
//	                           ├── apitest.Run: agent/api and the Task API
//	virtcontainers/fakeguest ──┘
package apitest
