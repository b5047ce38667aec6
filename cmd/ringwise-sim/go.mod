module github.com/ringwise/ringwise/cmd/ringwise-sim

go 1.26.0

require github.com/ringwise/ringwise v0.0.0

require golang.org/x/exp v0.0.0-20261113113407-e3970619a1a4 // indirect

require (
	github.com/klauspost/cpuid/v2 v2.2.10 // indirect
	github.com/zeebo/xxh3 v1.1.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
	gopkg.in/yaml.v3 v3.0.1
)

replace github.com/ringwise/ringwise => ../../
