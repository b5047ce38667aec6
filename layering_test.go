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
	"window.go", "histogram.go", "ring.go", "ringbuild.go", "ringchange.go",
	"num.go", "reason.go", "penalty.go", "verdict.go", "hooks.go", "clock.go", "budget.go", "hedge.go",
	"state.go", "lease.go", "cost.go", "snapshot.go", "hub.go", "observe.go", "weigh.go",
	"view.go", "filter.go", "scorer.go", "picker.go", "sample.go", "options.go",
	"router.go", "topology.go", "intake.go", "maintain.go", "candidates.go", "route.go", "plan.go", "explain.go", "do.go", "status.go",
}

// together are files that are one layer: a type and the code that builds it.
var together = map[string]string{
	"ringbuild.go": "ring.go", "ringchange.go": "ring.go", "maintain.go": "router.go", "topology.go": "router.go", "intake.go": "router.go",
	"hub.go": "snapshot.go", // a node points to the hub that holds the snapshot it is in
}

func TestLayering(t *testing.T) {
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
