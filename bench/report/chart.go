package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Bar is one line of a chart. Values of zero or less are left out.
type Bar struct {
	Name             string
	Value, Low, High float64
	Ours             bool
}

// Chart is a picture in SVG: a bar each, least first, on a logarithmic scale,
// ringwise in colour, with a whisker from Low to High.
func Chart(title, unit string, bars []Bar) string {
	bars = slices.DeleteFunc(slices.Clone(bars), func(b Bar) bool { return !(b.Value > 0) || math.IsInf(b.Value, 1) })
	slices.SortStableFunc(bars, func(a, b Bar) int {
		switch {
		case a.Value < b.Value:
			return -1
		case a.Value > b.Value:
			return 1
		}
		return 0
	})
	const (
		left, width, right = 230, 470, 90
		top, step          = 46, 22
	)
	least, most := math.Inf(1), 0.0
	for _, b := range bars {
		least, most = min(least, b.Value), max(most, b.Value)
	}
	from, to := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	if len(bars) == 0 {
		from, to = 0, 1
	}
	if from == math.Log10(least) {
		from-- // a bar of no length says nothing
	}
	to = max(to, from+1)
	x := func(v float64) float64 {
		return left + width*min(max((math.Log10(v)-from)/(to-from), 0), 1)
	}
	height := top + step*len(bars) + 30
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", left+width+right, height)
	fmt.Fprintf(&s, `<rect width="100%%" height="100%%" fill="#fff"/><text x="10" y="20" font-size="14" font-weight="bold" fill="#222">%s</text>`+"\n", html.EscapeString(title))
	for e := from; e <= to; e++ {
		at := x(math.Pow(10, e))
		fmt.Fprintf(&s, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle" fill="#666">%s %s</text>`+"\n",
			at, top-6, at, height-24, at, height-8, Number(math.Pow(10, e)), unit)
	}
	for i, b := range bars {
		y := top + step*i
		fill, weight := "#9aa5b1", "normal"
		if b.Ours {
			fill, weight = "#d9480f", "bold"
		}
		fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end" font-weight="%s" fill="#222">%s</text>`, left-8, y+12, weight, html.EscapeString(b.Name))
		fmt.Fprintf(&s, `<rect x="%d" y="%d" width="%.1f" height="14" fill="%s"/>`, left, y+1, x(b.Value)-left, fill)
		if b.Low > 0 && b.High > b.Low {
			fmt.Fprintf(&s, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#222"/>`, x(b.Low), y+8, x(b.High), y+8)
		}
		fmt.Fprintf(&s, `<text x="%.1f" y="%d" font-weight="%s" fill="#222">%s %s</text>`+"\n", max(x(b.Value), x(max(b.High, b.Value)))+5, y+12, weight, Number(b.Value), unit)
	}
	s.WriteString("</svg>\n")
	return s.String()
}
