package ringwise_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ringwise/ringwise"
)

const modulePath = "github.com/ringwise/ringwise"

// documents are the Markdown files of the repository, nested modules' included.
func documents(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, ".md"):
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 9 {
		t.Fatalf("found only %v", out)
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// block is one fenced block of a document.
type block struct {
	path string
	line int // of its first line
	lang string
	text string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.path, b.line) }

// split takes a document apart: its fenced blocks, and the rest with them left out.
func split(t *testing.T, path string) (blocks []block, prose string) {
	t.Helper()
	var in *block
	for i, line := range strings.SplitAfter(read(t, path), "\n") {
		switch mark, fence := strings.CutPrefix(strings.TrimSpace(line), "```"); {
		case fence && in == nil:
			in = &block{path: path, line: i + 2, lang: mark}
		case fence:
			blocks, in = append(blocks, *in), nil
		case in != nil:
			in.text += line
		default:
			prose += line
		}
	}
	if in != nil {
		t.Errorf("%v: a block that does not end", in)
	}
	return blocks, prose
}

var (
	linkRE    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingRE = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	slugRE    = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func TestDocs_LinksResolve(t *testing.T) {
	for _, path := range documents(t) {
		_, prose := split(t, path)
		for _, m := range linkRE.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
				continue
			}
			if anchor == "" {
				continue
			}
			_, there := split(t, target)
			found := false
			for _, h := range headingRE.FindAllStringSubmatch(there, -1) {
				slug := strings.ReplaceAll(slugRE.ReplaceAllString(strings.ToLower(strings.TrimSpace(h[1])), ""), " ", "-")
				found = found || slug == anchor
			}
			if !found {
				t.Errorf("%s links to %s: no such heading", path, m[1])
			}
		}
	}
}

// Fragments in the documents may use these without declaring them.
const preamble = `
var (
	ctx     context.Context
	r       *ringwise.Router
	key     string
	secret  string
	workers []ringwise.Worker

	errServer error
)

func use(value []byte, err error) error { return err }

func fetch(ctx context.Context, addr, key string) ([]byte, error) { return nil, nil }
`

var importable = map[string]string{
	"context": "context", "fmt": "fmt", "log": "log", "slog": "log/slog", "strings": "strings", "time": "time", "errors": "errors", "os": "os",
	"ringwise": modulePath, "keyspec": modulePath + "/keyspec", "hotkey": modulePath + "/hotkey", "goredis": modulePath + "/adapters/goredis", "redis": "github.com/redis/go-redis/v9",
}

var (
	topLevelRE = regexp.MustCompile(`(?m)^(func|type|import) `)
	selectorRE = regexp.MustCompile(`\b([a-z]+)\.[A-Z]`)
)

// program is a block as a file of its own, and whether it was a fragment.
func (b block) program() (src string, fragment bool) {
	if strings.HasPrefix(b.text, "package ") {
		return b.text, false
	}
	names := map[string]bool{"context": true, "ringwise": true} // of the preamble
	for _, m := range selectorRE.FindAllStringSubmatch(b.text, -1) {
		names[m[1]] = importable[m[1]] != ""
	}
	var imports string
	for name, path := range importable {
		if names[name] {
			imports += fmt.Sprintf("import %q\n", path)
		}
	}
	body := b.text
	if !topLevelRE.MatchString(body) {
		body = "func _() error {\n" + body + "\nreturn nil\n}\n"
	}
	return "package p\n" + imports + preamble + body, true
}

// TestDocs_SnippetsCompile checks the Go in the documents against the API.
// Blocks that need a nested module are checked where RINGWISE_NESTED is set,
// as in .ci/run, and parsed elsewhere: the root's tests need no other modules.
func TestDocs_SnippetsCompile(t *testing.T) {
	exports := map[string]map[string]string{}
	seen := 0
	for _, path := range documents(t) {
		blocks, _ := split(t, path)
		for _, b := range blocks {
			if b.lang != "go" {
				continue
			}
			seen++
			src, fragment := b.program()
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, b.path, src, 0)
			if err != nil {
				t.Errorf("%v: %v", b, err)
				continue
			}
			module := "."
			for _, i := range f.Imports {
				path := strings.Trim(i.Path.Value, `"`)
				if nested, ok := strings.CutPrefix(path, modulePath+"/"); ok {
					module = moduleOf(nested)
				} else if strings.Contains(path, ".") && path != modulePath {
					module = moduleOf(filepath.Dir(b.path))
				}
			}
			if module != "." && os.Getenv("RINGWISE_NESTED") == "" {
				continue
			}
			check(t, b, fset, f, fragment, module, exports)
		}
	}
	if seen < 6 {
		t.Errorf("found %d blocks of Go", seen)
	}
}

// moduleOf is the directory of the module that a directory is in.
func moduleOf(dir string) string {
	for ; dir != "."; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	return "."
}

func check(t *testing.T, b block, fset *token.FileSet, f *ast.File, fragment bool, module string, exports map[string]map[string]string) {
	known := exports[module]
	if known == nil {
		known = map[string]string{}
		exports[module] = known
	}
	for _, i := range f.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		if known[path] == "" {
			cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}}={{.Export}}{{end}}", path)
			cmd.Dir = module
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: go list %s: %v\n%s", b, path, err, &stderr)
			}
			for line := range strings.Lines(string(out)) {
				pkg, file, _ := strings.Cut(strings.TrimSpace(line), "=")
				known[pkg] = file
			}
		}
	}
	conf := types.Config{
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(known[path]) }),
		Error: func(err error) {
			// A fragment need not use what it shows.
			if e, ok := err.(types.Error); ok && e.Soft && fragment {
				return
			}
			t.Errorf("%v: %v", b, err)
		},
	}
	conf.Check("p", fset, []*ast.File{f}, nil) // errors go to conf.Error
}

// TestDocs_OutputsAreReal runs each whole program in the documents that is
// followed by a block of text, and compares. RINGWISE_UPDATE=1 writes what it
// printed into the document instead.
func TestDocs_OutputsAreReal(t *testing.T) {
	ran := 0
	for _, path := range documents(t) {
		blocks, _ := split(t, path)
		for i, b := range blocks {
			if b.lang != "go" || !strings.HasPrefix(b.text, "package main") || i+1 == len(blocks) || blocks[i+1].lang != "text" {
				continue
			}
			ran++
			file := filepath.Join(t.TempDir(), "main.go")
			if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("go", "run", file)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			want := blocks[i+1].text
			switch {
			case err != nil:
				t.Errorf("%v: %v\n%s", b, err, &stderr)
			case string(out) == want:
			case os.Getenv("RINGWISE_UPDATE") != "":
				doc := strings.Replace(read(t, path), want, string(out), 1)
				if err := os.WriteFile(path, []byte(doc), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("%v prints\n%s\nand %v says\n%s", b, out, blocks[i+1], want)
			}
		}
	}
	if ran == 0 {
		t.Error("found no program")
	}
	// What the README shows is cut out of one of them.
	blocks, _ := split(t, "README.md")
	for _, b := range blocks {
		for line := range strings.Lines(b.text) {
			if b.lang == "text" && !strings.Contains(read(t, "docs/explain.md"), line) {
				t.Errorf("%v: docs/explain.md does not have %q", b, line)
			}
		}
	}
}

var mapRowRE = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+\\.go)` \\|")

var folderRowRE = regexp.MustCompile("(?m)^\\| `([a-z0-9_/-]+?)/?` \\|")

// TestDesign_Folders: each package of the repository is in a folder that
// DESIGN.md tells of, and each of those is there.
func TestDesign_Folders(t *testing.T) {
	var folders []string
	for _, m := range folderRowRE.FindAllStringSubmatch(read(t, "DESIGN.md"), -1) {
		folders = append(folders, m[1])
		if info, err := os.Stat(m[1]); err != nil || !info.IsDir() {
			t.Errorf("DESIGN.md has the folder %s: %v", m[1], err)
		}
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "testdata" || path != "." && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir() || filepath.Dir(path) == "." || !strings.HasSuffix(path, ".go"):
			return nil
		}
		if !slices.ContainsFunc(folders, func(f string) bool { return strings.HasPrefix(path, f+"/") }) {
			t.Errorf("DESIGN.md does not tell of %s", filepath.Dir(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDesign_Map holds the map in DESIGN.md against the files there are and
// against their order in TestLayering.
func TestDesign_Map(t *testing.T) {
	var got, files []string
	for _, m := range mapRowRE.FindAllStringSubmatch(read(t, "DESIGN.md"), -1) {
		got = append(got, m[1])
	}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			files = append(files, name)
		}
	}
	if sorted := slices.Sorted(slices.Values(got)); !slices.Equal(sorted, files) {
		t.Errorf("DESIGN.md maps\n%v\nthere are\n%v", sorted, files)
	}
	f, err := parser.ParseFile(token.NewFileSet(), "layering_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var layers []string
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && v.Names[0].Name == "layers" {
			for _, e := range v.Values[0].(*ast.CompositeLit).Elts {
				name, _ := strconv.Unquote(e.(*ast.BasicLit).Value)
				layers = append(layers, name)
			}
		}
		return true
	})
	if !slices.Equal(got, layers) {
		t.Errorf("DESIGN.md has the order\n%v\nlayering_test.go\n%v", got, layers)
	}
}

var fieldRowRE = regexp.MustCompile("(?m)^\\| `([A-Z]\\w+)` \\| ([^|]+) \\| ([^|]+) \\|")

// TestTuningDoc_Fields holds docs/tuning.md against the struct: each field, its
// range and its default.
func TestTuningDoc_Fields(t *testing.T) {
	rows := map[string][2]string{}
	for _, m := range fieldRowRE.FindAllStringSubmatch(read(t, "docs/tuning.md"), -1) {
		rows[m[1]] = [2]string{m[2], m[3]}
	}
	def := reflect.ValueOf(ringwise.DefaultTuning())
	for _, f := range reflect.VisibleFields(def.Type()) {
		v := def.FieldByIndex(f.Index)
		if v.Kind() == reflect.Array {
			v = v.Index(0)
		}
		want := [2]string{f.Tag.Get("range"), fmt.Sprint(v.Interface())}
		if got, ok := rows[f.Name]; !ok || got != want {
			t.Errorf("%s: docs/tuning.md says %q, the code %q", f.Name, got, want)
		}
		delete(rows, f.Name)
	}
	for name := range rows {
		t.Errorf("docs/tuning.md has %s, Tuning has not", name)
	}
}

var pathRE = regexp.MustCompile("`(Status|Tuning|Decision|Request|Outcome|Options)((?:\\.[A-Z]\\w*)+)`")

// TestDocs_FieldsExist resolves paths such as `Status.Workers.Read.Phase`.
func TestDocs_FieldsExist(t *testing.T) {
	types := map[string]reflect.Type{
		"Status": reflect.TypeFor[ringwise.Status](), "Tuning": reflect.TypeFor[ringwise.Tuning](), "Decision": reflect.TypeFor[ringwise.Decision](),
		"Request": reflect.TypeFor[ringwise.Request](), "Outcome": reflect.TypeFor[ringwise.Outcome](),
	}
	seen := 0
	for _, path := range documents(t) {
		for _, m := range pathRE.FindAllStringSubmatch(read(t, path), -1) {
			at := types[m[1]]
			if at == nil {
				continue
			}
			seen++
			for name := range strings.SplitSeq(m[2][1:], ".") {
				for at.Kind() == reflect.Slice {
					at = at.Elem()
				}
				f, ok := at.FieldByName(name)
				if !ok {
					t.Errorf("%s: %s: %v has no %s", path, m[0], at, name)
					break
				}
				at = f.Type
			}
		}
	}
	if seen < 40 {
		t.Errorf("found %d paths", seen)
	}
}

// No document of ours is "the user's": a reader takes the user for himself.
func TestDocs_SourcesAreNamed(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, "docs/scorers.md") {
		for _, words := range []string{"user's documents", "user's\n// documents", "user's demonstration", "user's\n// demonstration"} {
			if !strings.HasSuffix(name, "_test.go") && strings.Contains(read(t, name), words) {
				t.Errorf("%s says %q", name, words)
			}
		}
	}
}

// TestReadme_Commands: what the README tells people to run is what CI runs.
func TestReadme_Commands(t *testing.T) {
	blocks, _ := split(t, "README.md")
	var readme []string
	for _, b := range blocks {
		if b.lang == "sh" {
			readme = append(readme, strings.Split(strings.TrimSpace(b.text), "\n")...)
		}
	}
	ci := read(t, ".ci/run")
	for _, command := range []string{"go test ./...", "go run ./examples/quickstart", "go mod download"} {
		if !slices.Contains(readme, command) {
			t.Errorf("README.md does not have the line %q", command)
		}
		if !strings.Contains(ci, command) {
			t.Errorf(".ci/run does not call %q", command)
		}
	}
}

// TestModule_ThreeRequirements: the root stays free of anything else.
func TestModule_ThreeRequirements(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Tool, Replace []any
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	allowed := []string{"github.com/zeebo/xxh3", "golang.org/x/exp", "github.com/stretchr/testify"}
	for _, r := range mod.Require {
		if !r.Indirect && !slices.Contains(allowed, r.Path) {
			t.Errorf("go.mod requires %s", r.Path)
		}
	}
	if len(mod.Tool)+len(mod.Replace) > 0 {
		t.Error("go.mod has a tool or replace directive")
	}
}

// TestDocs_TroubleshootingHasEachSymptom: the table has what people look for,
// each with causes and with the call or figure that tells.
func TestDocs_TroubleshootingHasEachSymptom(t *testing.T) {
	text := read(t, "docs/troubleshooting.md")
	rows := map[string][]string{}
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, " | "); len(cells) == 3 && strings.HasPrefix(line, "| ") {
			rows[strings.TrimPrefix(cells[0], "| ")] = cells[1:]
		}
	}
	for symptom, tells := range map[string]string{
		"Always the same worker":                                             "Explain",
		"A new worker stays near 0":                                          "`Status.Workers.Read.Phase`",
		"Shares are off although the scores are right":                       "`Decision.Candidates.Factor`",
		"Stale topology":                                                     "`Status.TopologyAge`",
		"Fake health: low latency, and it serves nobody":                     "`Status.Workers.Read.Failures`",
		"Shares oscillate after tuning":                                      "`Status.Flaps`",
		"A removed worker is still called":                                   "`Status.TopologyVersion`",
		"A restored worker is flooded":                                       "`Decision.Ramp`",
		"A heavy worker is picked in runs":                                   "SmoothWeighted",
		"Keys moved en masse":                                                "`Ring.Owners`",
		"Probe and metrics disagree: a health check is green, requests fail": "`Status.Workers.Flags`",
	} {
		cells, ok := rows[symptom]
		if !ok {
			t.Errorf("docs/troubleshooting.md has no row %q", symptom)
			continue
		}
		if len(strings.TrimSpace(cells[0])) < 20 {
			t.Errorf("%s: no causes in %q", symptom, cells[0])
		}
		if !strings.Contains(cells[1], tells) {
			t.Errorf("%s: %q does not name %s", symptom, cells[1], tells)
		}
	}
}
