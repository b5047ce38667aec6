//go:build light

package peers

// goZero is left out by -tags light.
var goZero []PickerPeer
