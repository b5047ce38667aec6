module github.com/ringwise/ringwise/adapters/goredis

go 1.26.0

require (
	github.com/redis/go-redis/v9 v9.23.0
	github.com/ringwise/ringwise v0.0.0-00010101000000-000000000000
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/klauspost/cpuid/v2 v2.4.0 // indirect
	github.com/zeebo/xxh3 v1.1.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/exp v0.0.0-20261113113407-e3970619a1a4 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace github.com/ringwise/ringwise => ../../
