package main

import (
	_ "embed"
	"encoding/json"
	"io"
	"math"
	"strings"
)

//go:embed page.html
var pageHTML string

// writePage writes one page that opens from disk: the data, the styles and the
// code that draws are in it, and nothing is fetched.
func writePage(w io.Writer, title string, set *runSet) error {
	type cells [][]*float64 // JSON has no NaN
	table := func(f string) (out cells) {
		for _, row := range set.cells(f) {
			var r []*float64
			for _, v := range row {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					r = append(r, nil)
				} else {
					v = math.Round(1000*v) / 1000
					r = append(r, &v)
				}
			}
			out = append(out, r)
		}
		return out
	}
	data := struct {
		Title string           `json:"title"`
		Set   *runSet          `json:"set"`
		Nines []float64        `json:"nines"`
		Cells map[string]cells `json:"cells"`
	}{title, set, cdfNines, map[string]cells{"p50": table("p50"), "p99": table("p99"), "p99.9": table("p99.9")}}
	// Marshal escapes <, > and &, so the data cannot end its script.
	enc, err := json.Marshal(data)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, strings.Replace(pageHTML, "/*DATA*/null", string(enc), 1))
	return err
}
