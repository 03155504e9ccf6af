package kvcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Status is the kind of an Error. It is an error itself, so errors.Is(err, kvcache.ErrStaleID) works. Codes 1 to 99 are
// misuse, 100 to 199 capacity (try later, or with less), 200 to 299 state, 300 to 399 the device, 400 to 499 data, and
// 900 and above a bug of the library. Later versions may have new codes; treat an unknown one by its band.
type Status int32

// Error is the status's name, "KVC_ERROR_STALE_ID".
func (s Status) Error() string {
	if name, known := statusNames[s]; known {
		return name
	}
	if l := loaded.Load(); l != nil {
		a := takeArena()
		defer a.giveBack()
		return staticString(l.statusName(a, s))
	}
	return fmt.Sprintf("kvcache status %d", int32(s))
}

// IsCapacity reports whether the status is of the capacity band: nothing is wrong, and the call may succeed later, or with
// less.
func (s Status) IsCapacity() bool { return s >= 100 && s < 200 }

// IsCapacity reports whether a call failed for lack of capacity: see Status.IsCapacity.
func IsCapacity(err error) bool {
	var failure *Error
	return errors.As(err, &failure) && failure.Status.IsCapacity()
}

// Error is what a call of the library reports.
type Error struct {
	Status    Status
	Message   string // "function: what, with the values", by the names of this package
	Index     int    // the row, layer or array element at fault; -1 = none
	Group     int    // the layer group at fault; -1 = none
	Required  int64  // of a capacity error: what the call needs
	Available int64  // and what there is
	ended     *ending
}

// ending is how a context ended that cancelled a step: why, and context.Canceled or context.DeadlineExceeded.
type ending struct{ cause, err error }

func endingOf(ctx context.Context) *ending {
	return &ending{cause: context.Cause(ctx), err: ctx.Err()}
}

func (e *Error) Error() string {
	if e.ended != nil {
		return fmt.Sprintf("kvcache: %s: %v", e.Message, e.ended.cause)
	}
	return "kvcache: " + e.Message
}

// Is reports whether target is the error's Status.
func (e *Error) Is(target error) bool {
	status, ok := target.(Status)
	return ok && status == e.Status
}

// Unwrap is how the context ended that cancelled the step, or nothing: its cause, and its error, which is context.Canceled or
// context.DeadlineExceeded.
func (e *Error) Unwrap() []error {
	if e.ended == nil {
		return nil
	}
	return []error{e.ended.cause, e.ended.err}
}

// OutOfPages says that a step or fork does not fit now. Nothing has changed; preempt a sequence, or try with less.
type OutOfPages struct {
	Row       int   // the first row, or child, that does not fit
	Group     int   // the layer group without pages
	Required  int64 // pages that the whole call needs
	Available int64 // pages that are free
	err       *Error
}

func (e *OutOfPages) Error() string { return e.err.Error() }

// Missing returns how many pages must become free.
func (e *OutOfPages) Missing() int64 { return e.Required - e.Available }

// Unwrap returns the same as an *Error.
func (e *OutOfPages) Unwrap() error { return e.err }

// check makes an error of what the library wrote into the arena.
func (a *arena) check(status Status) error {
	if status == kvcOk {
		return nil
	}
	return a.failure(status)
}

// ofFunction names another function in an error of the library: the one of this package that has called it.
func ofFunction(name string, err error) error {
	if failed, ok := err.(*Error); ok {
		if _, what, found := strings.Cut(failed.Message, ": "); found {
			failed.Message = name + ": " + what
		}
	}
	return err
}

func (a *arena) failure(status Status) error {
	written, _, _ := bytes.Cut(a.err.message[:], []byte{0})
	err := &Error{Status: status, Message: inGo(string(written)), Index: int(a.err.index), Group: int(a.err.group),
		Required: a.err.required, Available: a.err.available}
	a.err.init()
	if err.Message == "" {
		err.Message = status.Error()
	}
	if status == ErrOutOfPages {
		return &OutOfPages{Row: err.Index, Group: err.Group, Required: err.Required, Available: err.Available, err: err}
	}
	return err
}

// inGo replaces C's names in a message by those of this package. A name may have another meaning in one function.
func inGo(message string) string {
	function, _, _ := strings.Cut(message, ":")
	isOfWord := func(c rune) bool { return c == '_' || c < 128 && (unicode.IsLetter(c) || unicode.IsDigit(c)) }
	var result strings.Builder
	result.Grow(len(message) + 64)
	for rest := message; rest != ""; {
		begin := strings.IndexFunc(rest, isOfWord)
		if begin < 0 {
			begin = len(rest)
		}
		result.WriteString(rest[:begin])
		rest = rest[begin:]
		word := rest[:len(rest)-len(strings.TrimLeftFunc(rest, isOfWord))]
		rest = rest[len(word):]
		name, known := namesOfC[function+"."+word]
		if !known {
			name, known = namesOfC[word]
		}
		if !known {
			name = word
		}
		result.WriteString(name)
	}
	return result.String()
}

// misuse is an error that the library could not see: of slices, whose lengths C does not get, and of closed handles.
func misuse(status Status, format string, values ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, values...), Index: -1, Group: -1}
}
