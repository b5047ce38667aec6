package ringwise

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layers is the order of the files: each uses only what stands before it.
var layers = []string{
	"doc.go", "errors.go", "tuning.go", "worker.go",
	"window.go", "meter.go", "histogram.go", "ring.go", "ringruns.go", "ringbuild.go", "ringchange.go",
	"report.go", "num.go", "reportjson.go", "reportbin.go", "keystats.go", "stats.go", "reason.go", "penalty.go", "verdict.go", "hooks.go", "clock.go", "budget.go", "hedge.go", "watch.go",
	"state.go", "lease.go", "cost.go", "history.go", "mix.go", "trial.go", "snapshot.go", "hub.go", "baseline.go", "observe.go", "weigh.go",
	"view.go", "metric.go", "keys.go", "filter.go", "scorer.go", "tally.go",
	"score_fakehealth.go", "score_curve.go", "score_hybrid.go", "score_weighted.go", "score_gears.go", "score_relative.go", "score_latency.go",
	"score_density.go", "score_affinity.go", "score_composite.go", "score_capability.go", "score_pressure.go",
	"picker.go", "sample.go", "decisionlog.go", "options.go", "profile.go",
	"router.go", "topology.go", "intake.go", "probe.go", "maintain.go", "columns.go", "heat.go", "alarms.go", "rollout.go", "compare.go", "shadow.go", "candidates.go", "short.go", "route.go", "shade.go", "tries.go", "readkey.go", "directory.go", "plan.go", "explain.go", "do.go", "status.go",
}

// together are files that are one layer: a type and the code that builds it.
var together = map[string]string{
	"ringruns.go": "ring.go", "ringbuild.go": "ring.go", "ringchange.go": "ring.go", "maintain.go": "router.go", "topology.go": "router.go", "intake.go": "router.go", "probe.go": "router.go", "alarms.go": "router.go", "shadow.go": "router.go", "rollout.go": "router.go",
	"heat.go": "router.go", "columns.go": "router.go", "compare.go": "router.go", "shade.go": "route.go", "tries.go": "route.go", "readkey.go": "route.go", "directory.go": "route.go", "baseline.go": "snapshot.go",
	"hub.go": "snapshot.go", // a node points to the hub that holds the snapshot it is in
}

func TestLayering(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	var files []*ast.File
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if !slices.Contains(layers, name) {
			t.Errorf("%s has no place in the order of files", name)
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	pkg, err := conf.Check("ringwise", fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	layer := func(pos token.Pos) (string, int) {
		name := filepath.Base(fset.Position(pos).Filename)
		if first, ok := together[name]; ok {
			name = first
		}
		return name, slices.Index(layers, name)
	}
	seen := map[string]bool{}
	for id, obj := range info.Uses {
		if obj.Pkg() != pkg || obj.Pos() == token.NoPos {
			continue
		}
		user, i := layer(id.Pos())
		used, j := layer(obj.Pos())
		if msg := user + " uses " + obj.Name() + " of " + used; j > i && !seen[msg] {
			seen[msg] = true
			t.Error(msg)
		}
	}
}
