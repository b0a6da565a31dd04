package pipeline

import (
	"fmt"
	"strings"
)

// Class says what kind of mistake failed a render.
type Class string

// The classes.
const (
	// InvalidPackage: a Kptfile or another file is not what it must be. No function ran over it.
	InvalidPackage Class = "InvalidPackage"
	// FunctionNotFound: an image is not among the functions that may run.
	FunctionNotFound Class = "FunctionNotFound"
	// ExecRefused: the Kptfile asks to run a program by path.
	ExecRefused Class = "ExecRefused"
	// FunctionFailed: a function failed, or a validator found something.
	FunctionFailed Class = "FunctionFailed"
	// FunctionTimedOut: a function ran longer than allowed.
	FunctionTimedOut Class = "FunctionTimedOut"
	// InvalidOutput: a function left something that cannot be written to the package.
	InvalidOutput Class = "InvalidOutput"
	// TooLarge: the package has more than the limits allow.
	TooLarge Class = "TooLarge"
)

// Failure is why a render failed.
type Failure struct {
	Class Class
	// Message names the file and the field, and what to do.
	Message string
}

func (f *Failure) Error() string { return f.Message }

func failf(class Class, format string, args ...any) *Failure {
	return &Failure{Class: class, Message: strings.ToValidUTF8(fmt.Sprintf(format, args...), "\ufffd")}
}
