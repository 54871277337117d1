package network

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// noteRules notes that the namespace has policy rules: the guest gets the main table
// alone, and its kernel's rules.
func (v *view) noteRules(ns *namespace) error {
	count := 0
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := ns.RuleList(family)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
			continue // a kernel without policy routing, or without IPv6
		}
		if err != nil {
			return fmt.Errorf("list policy rules: %w", err)
		}
		for _, r := range rules {
			if !isKernelRule(r) {
				count++
			}
		}
	}
	if count > 0 {
		v.notes = append(v.notes, fmt.Sprintf("%d policy rules (ip rule), and the routes of the tables that they name: a guest has the main table alone", count))
	}
	return nil
}

// isKernelRule reports whether a rule is one that every namespace begins with
// (ip-rule(8)).
func isKernelRule(r netlink.Rule) bool {
	switch r.Priority {
	case 0:
		return r.Table == unix.RT_TABLE_LOCAL
	case 32766:
		return r.Table == unix.RT_TABLE_MAIN
	case 32767:
		return r.Table == unix.RT_TABLE_DEFAULT
	}
	return false
}
