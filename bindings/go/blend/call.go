package blend

import (
	"context"
	"runtime/debug"
	"unsafe"

	"libblend.io/go/internal/raw"
)

// call is one call of the library: its outcome, its cancel token and its listener. It belongs to one
// goroutine.
type call struct {
	ctx      context.Context
	out      raw.Outcome
	cancel   raw.Cancel   // nil of a simple one
	director raw.Listener // nil: no callbacks
	listener *listener
	stop     chan struct{} // nil: nobody watches ctx
	stopped  chan struct{}
}

// begin prepares a call that ctx may cancel. end or free must follow.
func begin(ctx context.Context, l *listener) (*call, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	if err := ctx.Err(); err != nil {
		return nil, &Error{Code: errCancelled, Message: "the context was done before the call", cause: err}
	}
	c := &call{ctx: ctx, out: raw.NewOutcome(), cancel: raw.NewCancel(), listener: l}
	if l != nil {
		c.director = raw.NewDirectorListener(l)
	}
	if ctx.Done() != nil {
		c.stop = make(chan struct{})
		c.stopped = make(chan struct{})
		go c.watch()
	}
	return c, nil
}

func (c *call) watch() {
	defer close(c.stopped)
	select {
	case <-c.ctx.Done():
		c.cancel.Request()
	case <-c.stop:
	}
}

// set puts the cancel token and the listener into the options of a long call.
func (c *call) set(options interface {
	Set_cancel(raw.Cancel)
	Set_listener(raw.Listener)
}) {
	options.Set_cancel(c.cancel)
	if c.director != nil {
		options.Set_listener(c.director)
	}
}

// failure gives the error that the last use of the Outcome reported.
func (c *call) failure() error { return c.failureOf(c.out) }

func (c *call) failureOf(out raw.Outcome) error {
	code := Code(out.Code())
	if code >= 0 {
		return nil
	}
	if code == errCallback && c.listener != nil && c.listener.err != nil {
		return c.listener.err
	}
	err := &Error{Code: code, Detail: out.Detail(), Message: spoken(out.Message())}
	err.cause = cause(code, err.Detail)
	if code == errCancelled && c.ctx != nil {
		err.cause = c.ctx.Err()
	}
	return err
}

// end frees what the call held and gives its failure.
func (c *call) end() error {
	err := c.failure()
	c.free()
	return err
}

func (c *call) free() {
	if c.stop != nil {
		close(c.stop)
		<-c.stopped
	}
	if c.director != nil {
		raw.DeleteDirectorListener(c.director)
	}
	if c.cancel != nil {
		raw.DeleteCancel(c.cancel)
	}
	raw.DeleteOutcome(c.out)
}

// simple makes a call that is too short to be cancelled.
func simple(use func(out raw.Outcome)) error {
	c := &call{out: raw.NewOutcome()}
	use(c.out)
	return c.end()
}

// listener is what SWIG's director calls. No panic leaves it, since its callers are C++.
type listener struct {
	progress    func(done, total int64) error
	score       func(*Scoring) error
	measurement func(Measurement) error
	err         error // of the callback that stopped the call
}

// listen gives nil if there are no callbacks.
func listen(l listener) *listener {
	if l.progress == nil && l.score == nil && l.measurement == nil {
		return nil
	}
	return &l
}

// guarded runs a callback and says whether the call is to go on.
func (l *listener) guarded(callback func() error) bool {
	l.err = apart(callback)
	return l.err == nil
}

// apart runs a callback on a goroutine of its own, and waits. runtime.Goexit ends the goroutine that
// calls it, and this one has frames of C++ on its stack, which must return.
func apart(callback func() error) error {
	err := ErrGoexit
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = recovered(callback) // does not come back from Goexit
	}()
	<-done
	return err
}

// recovered runs a callback and makes an error of its panic.
func recovered(callback func() error) (err error) {
	panicked := true
	defer func() {
		if panicked {
			err = &PanicError{Value: recover(), Stack: debug.Stack()}
		}
	}()
	err = callback()
	panicked = false
	return err
}

// Progress is called by SWIG's director.
func (l *listener) Progress(done, total uint64) bool {
	if l.progress == nil {
		return true
	}
	return l.guarded(func() error { return l.progress(int64(done), int64(total)) })
}

// Score is called by SWIG's director.
func (l *listener) Score(r raw.Scoring) bool {
	if l.score == nil {
		return l.guarded(func() error { return invalid("PolicyCallback needs FuseOptions.Score") })
	}
	n := int(r.Size())
	s := Scoring{
		Layer:     int(r.Layer()),
		Rows:      unsafe.Slice((*uint32)(r.Rows()), n),
		Deviation: unsafe.Slice((*float32)(r.Deviation()), n),
		Scores:    unsafe.Slice((*float32)(r.Scores()), n),
	}
	return l.guarded(func() error { return l.score(&s) })
}

// Measurement is called by SWIG's director.
func (l *listener) Measurement(r raw.Measurement) bool {
	if l.measurement == nil {
		return true
	}
	line := makeMeasurement(r)
	return l.guarded(func() error { return l.measurement(line) })
}

// Scoring is what a FuseOptions.Score is given: the candidate rows at a check layer, all slices of
// one length and valid during the call only. The rows with the largest Scores go on; Scores begins
// as a copy of Deviation, and is the only one to be written.
type Scoring struct {
	Layer     int
	Rows      []uint32 // places in the prompt, ascending
	Deviation []float32
	Scores    []float32
}
