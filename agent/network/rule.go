package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/fibrule"
)

// ruleGroup has rules of which the kernel uses the first that was added first.
type ruleGroup struct {
	ipv6     bool
	priority uint32
}

func groupOf(r fibrule.Rule) ruleGroup { return ruleGroup{r.IPv6, r.Priority} }

// dropRules deletes the rules of earlier calls that are not wanted, and adds the
// kernel's first rules that may stay. A rule can only be added behind those of its
// priority: if the order differs too, all of that priority are deleted, and addRules
// adds them.
func (j *job) dropRules() error {
	if len(j.own.rules)+len(j.own.absent) == 0 {
		return nil
	}
	have, err := rules()
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	if err := j.restoreRules(have, j.want.absent); err != nil {
		return err
	}
	owned := map[ruleGroup][]fibrule.Rule{}
	for r := range j.own.rules {
		owned[groupOf(r)] = nil
	}
	there := map[fibrule.Rule]bool{}
	for _, r := range have {
		if _, own := j.own.rules[r]; own && !there[r] {
			there[r] = true
			owned[groupOf(r)] = append(owned[groupOf(r)], r)
		}
	}
	maps.DeleteFunc(j.own.rules, func(r fibrule.Rule, _ struct{}) bool { return !there[r] })
	for group, list := range owned {
		wanted := slices.DeleteFunc(slices.Clone(j.want.rules), func(r fibrule.Rule) bool { return groupOf(r) != group })
		if len(list) <= len(wanted) && slices.Equal(list, wanted[:len(list)]) {
			continue
		}
		for _, r := range list {
			if err := j.dropRule(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropRule deletes a rule. The kernel deletes the first that has all that is named,
// which may be another, more exact one of the agent's in the same group: then that
// one's turn deletes this.
func (j *job) dropRule(r fibrule.Rule) error {
	err := changeRule(unix.RTM_DELRULE, 0, r)
	if err != nil && !isGone(err) {
		return fmt.Errorf("remove %s: %w", r, err)
	}
	delete(j.own.rules, r)
	if err == nil {
		j.changes.addf("%s removed", r)
	}
	return nil
}

// suspendRules undoes what earlier calls did to the rules, until addRules does it
// again.
func (j *job) suspendRules() error {
	have, err := rules()
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	if err := j.restoreRules(have, nil); err != nil {
		return err
	}
	for _, r := range have {
		if _, own := j.own.rules[r]; !own {
			continue
		}
		if err := j.dropRule(r); err != nil {
			return err
		}
	}
	return nil
}

// restoreRules adds the kernel's first rules that an earlier call deleted and that are
// not in absent.
func (j *job) restoreRules(have, absent []fibrule.Rule) error {
	for _, r := range fibrule.Defaults() {
		if _, gone := j.own.absent[r]; !gone || slices.Contains(absent, r) {
			continue
		}
		if !slices.Contains(have, r) {
			if err := changeRule(unix.RTM_NEWRULE, unix.NLM_F_CREATE, r); err != nil {
				return fmt.Errorf("add %s: %w", r, err)
			}
			j.changes.addf("%s added", r)
		}
		delete(j.own.absent, r)
	}
	return nil
}

// addRules adds the rules that are missing, and then deletes those of the kernel's
// first ones that are to go: until then they are in use.
func (j *job) addRules(ctx context.Context) error {
	if len(j.want.rules)+len(j.want.absent) == 0 {
		return nil
	}
	list, err := rules()
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	have := map[fibrule.Rule]bool{}
	for _, r := range list {
		have[r] = true
	}
	for _, r := range j.want.rules {
		if err := ctx.Err(); err != nil {
			return err
		}
		if have[r] {
			continue
		}
		if err := changeRule(unix.RTM_NEWRULE, unix.NLM_F_CREATE, r); err != nil {
			return fmt.Errorf("add %s: %w", r, err)
		}
		j.own.rules[r] = struct{}{}
		j.changes.addf("%s added", r)
	}
	for _, r := range j.want.absent {
		if !have[r] {
			continue
		}
		if err := changeRule(unix.RTM_DELRULE, 0, r); err != nil {
			return fmt.Errorf("remove %s: %w", r, err)
		}
		j.own.absent[r] = struct{}{}
		j.changes.addf("%s removed", r)
	}
	return nil
}

// leaveOut6 removes from the request what needs IPv6 and names no address: the guest's
// kernel is without.
func (j *job) leaveOut6() {
	j.want.routes = slices.DeleteFunc(slices.Clone(j.want.routes), func(r route) bool { return r.kind != 0 && r.destination.Addr().Is6() })
	is6 := func(r fibrule.Rule) bool { return r.IPv6 }
	j.want.rules = slices.DeleteFunc(slices.Clone(j.want.rules), is6)
	j.want.absent = slices.DeleteFunc(slices.Clone(j.want.absent), is6)
}

func changeRule(kind, flags int, r fibrule.Rule) error {
	req := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	req.AddRawData(r.Encode())
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// rules lists the rules of both families, those of IPv4 first, in the order in which
// they are used. It leaves out those that are not the agent's kind.
func rules() ([]fibrule.Rule, error) {
	var all []fibrule.Rule
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		messages, err := consistent(func() ([][]byte, error) {
			req := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
			req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family}})
			return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWRULE)
		})
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // a kernel without this family, or without rules
		}
		if err != nil {
			return nil, err
		}
		for _, message := range messages {
			r, odd, err := fibrule.Decode(message)
			if err != nil {
				return nil, err
			}
			if odd == "" {
				all = append(all, r)
			}
		}
	}
	return all, nil
}
