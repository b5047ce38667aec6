package keyspec_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ringwise/ringwise/keyspec"
)

func ExampleDefault() {
	k, _ := keyspec.Default().Parse("acme:order:17")
	fmt.Println(k.Tenant, k.Entity, k.ID, k.Slot)

	k, _ = keyspec.Default().Parse("session-4711")
	fmt.Println(k.Matched, k.ID)
	// Output:
	// acme order 17 160
	// false session-4711
}

func ExampleNew() {
	spec, err := keyspec.New(keyspec.Options{Prefix: "prod/", Pattern: "entity/tenant/id", Fold: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	k, _ := spec.Parse("PROD/Order/Acme/17")
	fmt.Println(k.Text, k.Tenant, k.Entity)
	// Output: order/acme/17 acme order
}

func ExampleNew_bad() {
	_, err := keyspec.New(keyspec.Options{Slots: 500})
	bad, _ := errors.AsType[*keyspec.ConfigError](err)
	fmt.Println(bad.Field, bad.Value)
	fmt.Println(err)
	// Output:
	// Slots 500
	// keyspec: Slots = 500, want a power of two in [1, 65536]
}

// Folding into a buffer of the caller's costs no allocation.
func ExampleSpec_ParseInto() {
	spec, _ := keyspec.New(keyspec.Options{Fold: true})
	var buf [64]byte
	k, _ := spec.ParseInto(buf[:0], "ACME:Order:17")
	fmt.Printf("%s %s\n", k.Tenant, k.Entity)
	// Output: acme order
}

func ExampleSpec_ParseBytes() {
	k, _ := keyspec.Default().ParseBytes(nil, []byte("acme:order:17"))
	fmt.Printf("%s %s\n", k.Tenant, k.ID)
	// Output: acme 17
}

// A store with keys of its own kind plugs in a function.
func ExampleParserFunc() {
	var parser keyspec.Parser = keyspec.ParserFunc(func(key string) (keyspec.Key, error) {
		k, err := keyspec.Default().Parse(key) // for Hash and Slot
		if tenant, rest, ok := strings.Cut(key, "@"); ok {
			k.Tenant, k.ID, k.Matched = tenant, rest, true
		}
		return k, err
	})
	k, _ := parser.Parse("acme@17")
	fmt.Println(k.Tenant, k.ID)
	// Output: acme 17
}

func ExampleParts_Fingerprint() {
	a, _ := keyspec.Default().Parse("acme:order:17")
	b, _ := keyspec.Default().Parse("acme:order:18")
	fmt.Println(a.Fingerprint() == b.Fingerprint())
	// Output: true
}
