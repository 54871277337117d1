// Package ginkgo compares two runs of a suite that is written for Ginkgo, the
// test framework of Kubernetes' projects: one with runc, and one with Katabox.
// Every case that passes with runc must pass with Katabox, except a list, which a
// page of the documentation repeats.
//
//	suite ──> Progress (lines for people), a report ──> Read ──> Compare, Table
//
// It starts no suite: how that is done is the caller's.
package ginkgo
