package measure

import "runtime"

// Mallocs is the number of heap objects allocated so far, exactly. It stops
// the world for some ten microseconds.
func Mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// Heap is the bytes of live heap after a collection.
func Heap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers let go of in the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
