package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringwise/ringwise"
	"github.com/ringwise/ringwise/internal/sim"
	"gopkg.in/yaml.v3"
)

// cluster is a config file: a scenario of the user's own, and Tunings to
// compare in it.
type cluster struct {
	scenario sim.Scenario
	policies []sim.Factory
}

// configError says where a config is wrong and what is allowed there.
type configError struct {
	file, field, want string
	line              int
	value             string
}

func (e *configError) Error() string {
	if e.value == "" {
		return fmt.Sprintf("%s:%d: %.200s: want %s", e.file, e.line, e.field, e.want)
	}
	return fmt.Sprintf("%s:%d: %.200s: %.100s: want %s", e.file, e.line, e.field, e.value, e.want)
}

// parser walks the YAML tree and collects errors, so that one run names all.
type parser struct {
	file string
	errs []error
}

func (p *parser) fail(n *yaml.Node, field, want string) {
	value := ""
	if n.Kind == yaml.ScalarNode {
		value = n.Value
		if value == "" {
			value = "nothing"
		}
	}
	p.errs = append(p.errs, &configError{p.file, field, want, n.Line, value})
}

// fields is what a mapping may hold: by name, what to do with its value.
type fields map[string]func(n *yaml.Node, field string)

func (p *parser) mapping(n *yaml.Node, at string, f fields) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		p.fail(n, at, "a mapping of "+strings.Join(slices.Sorted(maps.Keys(f)), ", "))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		name := at + "." + k.Value
		if at == "" {
			name = k.Value
		}
		set, ok := f[k.Value]
		switch {
		case !ok:
			p.errs = append(p.errs, &configError{p.file, name, "one of " + strings.Join(slices.Sorted(maps.Keys(f)), ", "), k.Line, "unknown field"})
		case seen[k.Value]:
			p.errs = append(p.errs, &configError{p.file, name, "each field once", k.Line, "given twice"})
		default:
			set(v, name)
		}
		seen[k.Value] = true
	}
}

func (p *parser) number(dst *float64, low, high float64) func(*yaml.Node, string) {
	return func(n *yaml.Node, field string) {
		v, err := strconv.ParseFloat(n.Value, 64)
		if n.Kind != yaml.ScalarNode || err != nil || !(v >= low && v <= high) {
			p.fail(n, field, fmt.Sprintf("a number from %v to %v", low, high))
			return
		}
		*dst = v
	}
}

func (p *parser) count(dst *int, low, high int) func(*yaml.Node, string) {
	return func(n *yaml.Node, field string) {
		v, err := strconv.Atoi(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || v < low || v > high {
			p.fail(n, field, fmt.Sprintf("a whole number from %d to %d", low, high))
			return
		}
		*dst = v
	}
}

func (p *parser) duration(dst *time.Duration, low, high time.Duration) func(*yaml.Node, string) {
	return func(n *yaml.Node, field string) {
		v, err := time.ParseDuration(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || v < low || v > high {
			p.fail(n, field, fmt.Sprintf("a duration such as 250ms, from %v to %v", low, high))
			return
		}
		*dst = v
	}
}

func (p *parser) flag(dst *bool) func(*yaml.Node, string) {
	return func(n *yaml.Node, field string) {
		if n.Kind != yaml.ScalarNode || n.Value != "true" && n.Value != "false" {
			p.fail(n, field, "true or false")
			return
		}
		*dst = n.Value == "true"
	}
}

// event is one line of events.
type event struct {
	line                      int
	at, until                 time.Duration
	workers                   []int
	slow                      float64
	pause                     time.Duration
	fail, refuse, dead, crash bool
}

// loadConfig reads a cluster. Errors name file, line, field and what is
// allowed, all of them at once.
func loadConfig(name string) (*cluster, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseConfig(name, data)
}

func parseConfig(name string, data []byte) (*cluster, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(doc.Content) == 0 {
		return nil, &configError{name, "cluster", "a mapping with cluster, events and tunings", 1, "an empty file"}
	}
	p := &parser{file: name}
	s := sim.DefaultScenario()
	s.Name, s.Title = "cluster", name
	rate, rateLine := 0.0, 0
	sizeLine := 1 // of what makes a run long: the duration, if it is given
	var events []event
	c := &cluster{}
	p.mapping(doc.Content[0], "", fields{
		"cluster": func(n *yaml.Node, at string) {
			sizeLine = n.Line
			p.mapping(n, at, fields{
				"workers":    p.count(&s.Workers, 1, 10000),
				"slots":      p.count(&s.Slots, 1, 100000),
				"clients":    p.count(&s.Clients, 1, 100000),
				"replicas":   p.count(&s.Replicas, 1, sim.MaxReplicas),
				"partitions": p.count(&s.Partitions, 1, 1<<20),
				"load":       p.number(&s.Load, 0.01, 1.5),
				"rate": func(n *yaml.Node, field string) {
					rateLine = n.Line
					p.number(&rate, 1, 1e9)(n, field)
				},
				"service": func(n *yaml.Node, at string) {
					p.mapping(n, at, fields{
						"mean":  p.duration(&s.Service, time.Microsecond, time.Hour),
						"shape": p.number(&s.ServiceDist.Shape, 0, 1000),
						"share": p.number(&s.ServiceDist.Share, 0, 0.999),
						"kind": func(n *yaml.Node, field string) {
							d := sim.Dist{Kind: n.Value}
							if n.Kind != yaml.ScalarNode || n.Value == "" || d.Validate() != nil {
								p.fail(n, field, "exponential, fixed, lognormal, bimodal or pareto")
								return
							}
							s.ServiceDist.Kind = n.Value
						},
					})
				},
				"net":     p.duration(&s.Net, 0, time.Minute),
				"timeout": p.duration(&s.Timeout, time.Microsecond, time.Hour),
				"warmup":  p.duration(&s.Warmup, 0, time.Hour),
				"duration": func(n *yaml.Node, field string) {
					sizeLine = n.Line
					p.duration(&s.Duration, time.Millisecond, 24*time.Hour)(n, field)
				},
				"reports": func(n *yaml.Node, at string) {
					p.mapping(n, at, fields{
						"every": p.duration(&s.ReportEvery, 0, time.Hour),
						"delay": p.duration(&s.ReportDelay, 0, time.Hour),
					})
				},
				"hot_key":    p.number(&s.HotKey, 0, 0.99),
				"zipf":       p.number(&s.Zipf, 0, 5),
				"keys":       p.count(&s.Keys, 0, 1<<24),
				"writes":     p.number(&s.Writes, 0, 0.99),
				"lost":       p.number(&s.Lost, 0, 0.99),
				"app_errors": p.number(&s.AppErrors, 0, 0.99),
			})
		},
		"events":  func(n *yaml.Node, at string) { events = p.events(n, at) },
		"tunings": func(n *yaml.Node, at string) { c.policies = p.tunings(n, at) },
	})
	for _, e := range events {
		for _, w := range e.workers {
			if w >= s.Workers {
				p.errs = append(p.errs, &configError{name, "events.workers", fmt.Sprintf("0 to %d", s.Workers-1), e.line, strconv.Itoa(w)})
			}
		}
	}
	if rate > 0 {
		s.Load = 1
		s.Load = rate / s.Rate()
		if s.Load > 1.5 {
			p.errs = append(p.errs, &configError{name, "cluster.rate", fmt.Sprintf("at most 1.5 times what the fleet serves, which is %.0f a second", rate/s.Load), rateLine, fmt.Sprint(rate)})
			s.Load = 1
		}
	}
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...)
	}
	if s.Zipf > 0 && s.Keys == 0 {
		s.Keys = 10000
	}
	// Rules over several fields, which have no line of their own.
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("%s: cluster: %w", name, err)
	}
	if err := s.Fits(sim.Options{}); err != nil {
		return nil, fmt.Errorf("%s:%d: cluster.duration: %w", name, sizeLine, err)
	}
	s.Changes = changes(events)
	c.scenario = s
	return c, nil
}

func (p *parser) events(n *yaml.Node, at string) (out []event) {
	if n.Kind != yaml.SequenceNode {
		p.fail(n, at, "a list of events")
		return nil
	}
	for i, item := range n.Content {
		e := event{line: item.Line}
		given := ""
		once := func(name string, set func(*yaml.Node, string)) func(*yaml.Node, string) {
			return func(n *yaml.Node, field string) {
				if given != "" {
					p.fail(n, field, "one of slow, pause, fail, refuse, dead and crash; "+given+" is there already")
				}
				given = name
				set(n, field)
			}
		}
		field := fmt.Sprintf("%s[%d]", at, i)
		p.mapping(item, field, fields{
			"at":    p.duration(&e.at, 0, 24*time.Hour),
			"until": p.duration(&e.until, 0, 24*time.Hour),
			"workers": func(n *yaml.Node, field string) {
				if n.Kind != yaml.SequenceNode {
					p.fail(n, field, "a list of worker numbers, from 0")
					return
				}
				for _, w := range n.Content {
					var v int
					p.count(&v, 0, 9999)(w, field)
					e.workers = append(e.workers, v)
				}
			},
			"slow":   once("slow", p.number(&e.slow, 0.01, 1000)),
			"pause":  once("pause", p.duration(&e.pause, time.Microsecond, time.Hour)),
			"fail":   once("fail", p.flag(&e.fail)),
			"refuse": once("refuse", p.flag(&e.refuse)),
			"dead":   once("dead", p.flag(&e.dead)),
			"crash":  once("crash", p.flag(&e.crash)),
		})
		switch {
		case given == "":
			p.fail(item, field, "one of slow, pause, fail, refuse, dead and crash")
		case len(e.workers) == 0:
			p.fail(item, field+".workers", "a list of worker numbers, from 0")
		case e.until != 0 && e.until <= e.at:
			p.fail(item, field+".until", "a time after at")
		}
		out = append(out, e)
	}
	return out
}

// changes turns events into what the simulator plays.
func changes(events []event) func(*sim.Scenario, *rand.Rand) []sim.Change {
	if len(events) == 0 {
		return nil
	}
	return func(s *sim.Scenario, _ *rand.Rand) []sim.Change {
		var out []sim.Change
		for _, e := range events {
			for _, w := range e.workers {
				window := func(k sim.ChangeKind, on, off float64) {
					out = append(out, sim.Change{At: e.at, Worker: w, Kind: k, Value: on})
					if e.until > 0 {
						out = append(out, sim.Change{At: e.until, Worker: w, Kind: k, Value: off})
					}
				}
				switch {
				case e.slow > 0:
					window(sim.Slow, e.slow, 1)
				case e.pause > 0:
					out = append(out, sim.Change{At: e.at, Worker: w, Kind: sim.Pause, Value: e.pause.Seconds()})
				case e.fail:
					window(sim.Fail, 1, 0)
				case e.refuse:
					window(sim.Refuse, 1, 0)
				case e.dead:
					window(sim.Dead, 1, 0)
				case e.crash:
					out = append(out, sim.Change{At: e.at, Worker: w, Kind: sim.Crash})
				}
			}
		}
		slices.SortStableFunc(out, func(a, b sim.Change) int { return int(a.At - b.At) })
		return out
	}
}

// tunings reads the Tunings to compare, each over the defaults, with and
// without feedback.
func (p *parser) tunings(n *yaml.Node, at string) (out []sim.Factory) {
	if n.Kind != yaml.MappingNode || len(n.Content) > 4 {
		p.fail(n, at, "one or two named Tunings")
		return nil
	}
	names := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, body := n.Content[i].Value, n.Content[i+1]
		field := at + "." + name
		if names[name] {
			p.errs = append(p.errs, &configError{p.file, field, "each name once", n.Content[i].Line, "given twice"})
		}
		names[name] = true
		if body.Kind == yaml.ScalarNode && (body.Value == "" || body.Tag == "!!null") {
			body = &yaml.Node{Kind: yaml.MappingNode, Line: body.Line}
		}
		if body.Kind != yaml.MappingNode {
			p.fail(body, field, "a mapping of Tuning fields")
			continue
		}
		tuning, seen := ringwise.DefaultTuning(), map[string]bool{}
		for j := 0; j+1 < len(body.Content); j += 2 {
			k, v := body.Content[j], body.Content[j+1]
			if seen[k.Value] {
				p.errs = append(p.errs, &configError{p.file, field + "." + k.Value, "each field once", k.Line, "given twice"})
			}
			seen[k.Value] = true
			var val any
			if err := v.Decode(&val); err != nil {
				p.fail(v, field+"."+k.Value, err.Error())
				continue
			}
			enc, err := json.Marshal(map[string]any{k.Value: val})
			if err == nil {
				// One field at a time, so that an error has its line.
				if err = tuning.UnmarshalJSON(enc); err == nil {
					err = tuning.Validate()
				}
			}
			if err != nil {
				want := err.Error()
				if e, ok := errors.AsType[*ringwise.ConfigError](err); ok {
					want = e.Want
				}
				p.fail(v, field+"."+k.Value, want)
				tuning = ringwise.DefaultTuning()
			}
		}
		out = append(out, sim.Ringwise(name, true, &tuning), sim.Ringwise(name+"-local", false, &tuning))
	}
	return out
}
