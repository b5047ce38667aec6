package keyspec

import (
	"errors"
	"fmt"
)

var (
	// ErrConfig: an option is out of range. Detail: *ConfigError, one for each
	// bad field.
	ErrConfig = errors.New("keyspec: bad configuration")
	// ErrTooLong: the key is longer than Options.MaxLen; nothing of it was read.
	ErrTooLong = errors.New("keyspec: key too long")
)

// ConfigError names one bad option. It unwraps to ErrConfig.
type ConfigError struct {
	Field string // as the caller wrote it: "Pattern"
	Value any    // what was given
	Want  string // what is allowed: "a power of two in [1, 65536]"
}

// Error names the field, its value and what is allowed.
func (e *ConfigError) Error() string {
	if s, ok := e.Value.(string); ok {
		return fmt.Sprintf("keyspec: %s = %.100q, want %s", e.Field, s, e.Want)
	}
	return fmt.Sprintf("keyspec: %s = %v, want %s", e.Field, e.Value, e.Want)
}

// Unwrap makes errors.Is(err, ErrConfig) true.
func (e *ConfigError) Unwrap() error { return ErrConfig }
