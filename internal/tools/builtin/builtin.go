// Package builtin is the tools every definition may name without bringing them: the file tools and extract_text.
package builtin

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/tool"
)

// Tools returns list_directory, read_text, move_file and extract_text, all confined to the folder at root, an absolute
// path. ocrEnv is the environment of tesseract, NAME=value, usually none; see ocr.Tool.
func Tools(root string, ocrEnv ...string) ([]tool.Tool, error) {
	onFiles, err := FileTools(root)
	if err != nil {
		return nil, fmt.Errorf("make built-in tools: %w", err)
	}
	extract, err := Tool(root, ocrEnv...)
	if err != nil {
		return nil, fmt.Errorf("make built-in tools: %w", err)
	}
	return append(onFiles, extract), nil
}

// PerRun returns the built-in tools for a registry: each call is confined to the folder that the run's own definition
// names (Call.Root), so that one process serves runs in many folders and a run picked up later works in the same one. A
// call without a folder is refused.
func PerRun(ocrEnv ...string) ([]tool.Tool, error) {
	specs, err := Tools("/", ocrEnv...)
	if err != nil {
		return nil, err
	}
	b := &byRoot{env: ocrEnv, made: map[string]map[string]tool.Tool{}}
	out := make([]tool.Tool, len(specs))
	for i, t := range specs {
		p := perRun{spec: t.Spec(), byRoot: b}
		out[i] = p
		if _, ok := t.(tool.Reconciler); ok {
			out[i] = perRunReconciler{p}
		}
	}
	return out, nil
}

// byRoot makes the tools of a folder once. Safe for concurrent use.
type byRoot struct {
	env  []string
	mu   sync.Mutex
	made map[string]map[string]tool.Tool
}

func (b *byRoot) find(root, name string) (tool.Tool, error) {
	if root == "" {
		return nil, tool.Refusef("%s is confined to no folder: the agent's definition must name one as the tool's root", name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made[root] == nil {
		tools, err := Tools(root, b.env...)
		if err != nil {
			return nil, err
		}
		b.made[root] = map[string]tool.Tool{}
		for _, t := range tools {
			b.made[root][t.Spec().Name] = t
		}
	}
	return b.made[root][name], nil
}

type perRun struct {
	spec agent.ToolSpec
	*byRoot
}

func (p perRun) Spec() agent.ToolSpec { return p.spec }

func (p perRun) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	t, err := p.find(c.Root, p.spec.Name)
	if err != nil {
		return agent.ToolResultData{}, err
	}
	return t.Call(ctx, c)
}

type perRunReconciler struct{ perRun }

func (p perRunReconciler) Reconcile(ctx context.Context, c tool.Call) (tool.Outcome, agent.ToolResultData, error) {
	t, err := p.find(c.Root, p.spec.Name)
	if err != nil {
		return tool.OutcomeUnknown, agent.ToolResultData{}, err
	}
	r, ok := t.(tool.Reconciler)
	if !ok {
		return tool.OutcomeUnknown, agent.ToolResultData{}, fmt.Errorf("reconcile %s: it cannot", p.spec.Name)
	}
	return r.Reconcile(ctx, c)
}

// capped keeps the first bytes written to it, and calls full when there are more. What comes after is dropped, so that
// the writer is not held up. It is written to by one goroutine at a time.
type capped struct {
	kept bytes.Buffer // a field, since its ReadFrom would go round the cap
	most int
	full func()
	cut  bool
}

// Write never fails.
func (c *capped) Write(p []byte) (int, error) {
	keep := min(len(p), c.most-c.kept.Len())
	c.kept.Write(p[:keep])
	if keep < len(p) && !c.cut {
		c.cut = true
		c.full()
	}
	return len(p), nil
}
