package ringwise_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// featureIDs are all that docs/features.md must have: how many of each letter.
var featureIDs = map[string]int{"R": 10, "S": 9, "K": 5, "F": 5, "C": 16, "P": 8, "Q": 4, "O": 10}

const (
	featuresFile   = "docs/features.md"
	rowsOfOneTest  = 3
	featuresEnvVar = "RINGWISE_FEATURES"
)

var (
	featureRowRE  = regexp.MustCompile(`^\| ?([A-Z]+\d+) ?\| ?(.*?) ?\| ?([^|]*?) ?\|\s*$`)
	featureTestRE = regexp.MustCompile("`(?:([a-z/]+)\\.)?(Test\\w+)`")
	passLineRE    = regexp.MustCompile(`(?m)^(=== | *--- PASS: ).*\n`)
	skipCallRE    = regexp.MustCompile(`^(Skip|Skipf|SkipNow)$`)
)

// feature is a row of docs/features.md; its tests by directory and name.
type feature struct {
	id, what string
	tests    []packageTest
}

type packageTest struct{ dir, name string }

func (p packageTest) String() string { return strings.TrimPrefix(p.dir+"."+p.name, "..") }

func featuresIn(text string) (rows []feature) {
	for line := range strings.Lines(text) {
		m := featureRowRE.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		f := feature{id: m[1], what: m[2]}
		for _, name := range featureTestRE.FindAllStringSubmatch(m[3], -1) {
			dir := name[1]
			if dir == "" {
				dir = "."
			}
			f.tests = append(f.tests, packageTest{dir, name[2]})
		}
		rows = append(rows, f)
	}
	return rows
}

// eachFunc calls f with each function of a directory's test files and whether
// it skips.
func eachFunc(dir string, f func(fn *ast.FuncDecl, skips bool)) error {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no test files in %s: %w", dir, err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			skips := false
			ast.Inspect(fn, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && skipCallRE.MatchString(s.Sel.Name) {
					skips = true
				}
				return true
			})
			f(fn, skips)
		}
	}
	return nil
}

// testsOf finds the test functions of a directory and, for each, whether it
// skips itself.
func testsOf(dir string) (map[string]bool, error) {
	out := map[string]bool{}
	err := eachFunc(dir, func(fn *ast.FuncDecl, skips bool) {
		if fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
			out[fn.Name.Name] = skips
		}
	})
	return out, err
}

// featureFaults are all that is wrong with a page of features.
func featureFaults(rows []feature, testsOf func(dir string) (map[string]bool, error)) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	want := map[string]bool{}
	for letter, n := range featureIDs {
		for i := range n {
			want[fmt.Sprint(letter, i+1)] = true
		}
	}
	seen, uses, known := map[string]bool{}, map[packageTest]int{}, map[string]map[string]bool{}
	for _, f := range rows {
		switch {
		case !want[f.id]:
			fault("%s is no feature", f.id)
		case seen[f.id]:
			fault("%s is there twice", f.id)
		}
		seen[f.id] = true
		if f.what == "" {
			fault("%s says nothing", f.id)
		}
		if len(f.tests) == 0 {
			fault("%s has no test", f.id)
		}
		for _, p := range f.tests {
			if known[p.dir] == nil {
				tests, err := testsOf(p.dir)
				if err != nil {
					fault("%s: %v", f.id, err)
				}
				known[p.dir] = tests
			}
			skips, ok := known[p.dir][p.name]
			if !ok {
				fault("%s: there is no %v", f.id, p)
			}
			if skips {
				fault("%s: %v skips itself", f.id, p)
			}
			if uses[p]++; uses[p] == rowsOfOneTest+1 {
				fault("%v serves over %d rows", p, rowsOfOneTest)
			}
		}
	}
	for id := range want {
		if !seen[id] {
			fault("%s is missing", id)
		}
	}
	slices.Sort(faults)
	return faults
}

// TestFeatures_EachRowHasItsTest holds docs/features.md against the tests.
func TestFeatures_EachRowHasItsTest(t *testing.T) {
	for _, fault := range featureFaults(featuresIn(read(t, featuresFile)), testsOf) {
		t.Errorf("%s: %s", featuresFile, fault)
	}
}

// TestFeatures_FaultsAreSeen: each way in which the page can be wrong is found.
func TestFeatures_FaultsAreSeen(t *testing.T) {
	t.Parallel()
	page := read(t, featuresFile)
	for fault, change := range map[string]func(s string) string{
		"R7 is missing":            func(s string) string { return regexp.MustCompile(`(?m)^\| R7 .*\n`).ReplaceAllString(s, "") },
		"R11 is no feature":        func(s string) string { return s + "| R11 | new | `TestGears` |\n" },
		"C3 is there twice":        func(s string) string { return s + "| C3 | again | `TestGears` |\n" },
		"C3 has no test":           func(s string) string { return strings.ReplaceAll(s, "`TestGears`", "soon") },
		"there is no TestNobody":   func(s string) string { return strings.ReplaceAll(s, "`TestGears`", "`TestNobody`") },
		"there is no hotkey.":      func(s string) string { return strings.ReplaceAll(s, "`TestGears`", "`hotkey.TestGears`") },
		"no test files in nowhere": func(s string) string { return strings.ReplaceAll(s, "`TestGears`", "`nowhere.TestGears`") },
		"TestGears skips itself":   func(s string) string { return s + "\n" },
		"TestGears serves over 3": func(s string) string {
			return strings.ReplaceAll(s, "`TestExample_CompositeScore`", "`TestGears`, `TestGears`, `TestGears`")
		},
	} {
		changed := change(page)
		if changed == page {
			t.Errorf("%s: the change changes nothing", fault)
		}
		faults := featureFaults(featuresIn(changed), func(dir string) (map[string]bool, error) {
			tests, err := testsOf(dir)
			if fault == "TestGears skips itself" && dir == "." {
				tests["TestGears"] = true
			}
			return tests, err
		})
		if !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, fault) }) {
			t.Errorf("%q is not among %q", fault, faults)
		}
	}
}

// TestTests_NoneSkips: a test that skips where something is missing says
// nothing in CI. What cannot run under the race detector is built without it.
func TestTests_NoneSkips(t *testing.T) {
	n := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if d.Name() == ".git" || d.Name() == "testdata" {
			return filepath.SkipDir
		}
		if files, _ := filepath.Glob(filepath.Join(path, "*_test.go")); len(files) == 0 {
			return nil
		}
		return eachFunc(path, func(fn *ast.FuncDecl, skips bool) {
			if strings.HasPrefix(fn.Name.Name, "Fuzz") {
				return // an input may be of no interest
			}
			if n++; skips {
				t.Errorf("%s: %s skips", path, fn.Name.Name)
			}
		})
	})
	if err != nil || n < 500 {
		t.Errorf("%d tests found, %v", n, err)
	}
}

// TestFeatures_TestsPass runs each test the page names, where
// RINGWISE_FEATURES is set, as in .ci/run: a row is there when its tests pass.
func TestFeatures_TestsPass(t *testing.T) {
	if os.Getenv(featuresEnvVar) == "" {
		return // the tests run by themselves beside this one
	}
	rows := featuresIn(read(t, featuresFile))
	byDir := map[string]map[string]bool{}
	for _, f := range rows {
		for _, p := range f.tests {
			if byDir[p.dir] == nil {
				byDir[p.dir] = map[string]bool{}
			}
			byDir[p.dir][p.name] = true
		}
	}
	passed := map[packageTest]bool{}
	for dir, names := range byDir {
		// -short is not passed on, nor is this test among those run.
		run := "^(" + strings.Join(slices.Sorted(maps.Keys(names)), "|") + ")$"
		cmd := exec.Command("go", "test", "-count=1", "-run", run, "-v", ".")
		cmd.Dir = dir
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		for name := range names {
			passed[packageTest{dir, name}] = strings.Contains(out.String(), "\n--- PASS: "+name+" (")
		}
		if err != nil {
			t.Errorf("go test in %s: %v\n%s", dir, err, passLineRE.ReplaceAllString(out.String(), ""))
		}
	}
	for _, f := range rows {
		for _, p := range f.tests {
			if !passed[p] {
				t.Errorf("%s: %v did not pass", f.id, p)
			}
		}
	}
}
