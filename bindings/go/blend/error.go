package blend

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"
)

// Code is a number of blend.h's BLEND_E_* or of the binding's own.
type Code int32

func (c Code) String() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return fmt.Sprintf("code %d", int32(c))
}

// Error is a failure of the library. errors.Is compares it with the sentinels by its code.
type Error struct {
	Code    Code
	Detail  int64  // the errno of an ErrIO, else 0
	Message string // one sentence that names the thing and the way out
	cause   error
}

func (e *Error) Error() string {
	return fmt.Sprintf("blend: %s (%s)", e.Message, e.Code)
}

// Is says whether target is an *Error of the same code.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}

// Unwrap gives the syscall.Errno of an ErrIO, and the context's error of a call that it cancelled.
func (e *Error) Unwrap() error { return e.cause }

// PanicError is the panic of a callback, from the call that it was given to.
type PanicError struct {
	Value any    // what panic was called with
	Stack []byte // where, as of debug.Stack
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("blend: a callback panicked: %v", e.Value)
}

// Unwrap gives the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ErrGoexit is what a call gives when runtime.Goexit ended a callback of it.
var ErrGoexit = errors.New("blend: a callback called runtime.Goexit")

// Stop, returned by a callback of Generate, ends the generation without an error.
var Stop = errors.New("blend: stop")

var (
	errCancelled = ErrCancelled.(*Error).Code
	errCallback  = ErrCallback.(*Error).Code
	errIO        = ErrIO.(*Error).Code
	errClosed    = ErrClosed.(*Error).Code
	errInvalid   = ErrInvalidArgument.(*Error).Code
)

var nameInC = regexp.MustCompile(`\b(?:blend|BLEND)_\w+`)

// spoken gives a sentence of the library with Go's names of what it calls by its name in C.
func spoken(message string) string {
	if !strings.Contains(message, "blend_") && !strings.Contains(message, "BLEND_") {
		return message
	}
	return nameInC.ReplaceAllStringFunc(message, func(name string) string {
		if here, ok := namesInGo[name]; ok {
			return here
		}
		return name
	})
}

func closed(what string) error {
	return &Error{Code: errClosed, Message: "the " + what + " is closed, or was never opened"}
}

func invalid(format string, args ...any) error {
	return &Error{Code: errInvalid, Message: fmt.Sprintf(format, args...)}
}

func cause(code Code, detail int64) error {
	if code == errIO && detail > 0 {
		return syscall.Errno(detail)
	}
	return nil
}
