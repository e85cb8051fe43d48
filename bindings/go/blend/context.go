package blend

import (
	"runtime"
	"sync"

	"libblend.io/go/internal/raw"
)

// Version is that of the loaded library: "major.minor.patch".
func Version() string { return raw.Version() }

// Context owns the compute threads, which concurrent calls share. See the package's notes on
// goroutines and lifetime.
type Context struct {
	raw    raw.Context
	events *events
}

// ContextOptions are options of NewContext. The zero value has the defaults.
type ContextOptions struct {
	//blend:fields ctx_options
	// OnEvent is called for events worth a log line that are not the error of a call: damage found in a store and
	// treated as a miss, a background write that failed. It runs on a goroutine of its own, one
	// event at a time; if more than 1024 wait, the oldest are dropped. If it panics or calls
	// runtime.Goexit, it is called no more, and Context.Close gives the error.
	OnEvent func(code Code, message string)
}

// NewContext starts the threads. options may be nil. Errors: ErrInvalidArgument, ErrNoDevice,
// ErrUnsupported, ErrOutOfMemory.
func NewContext(options *ContextOptions) (*Context, error) {
	o := given(options)
	r := raw.NewContextOptions()
	defer raw.DeleteContextOptions(r)
	//blend:set ctx_options
	c := &Context{}
	var told raw.Events
	err := simple(func(out raw.Outcome) {
		if o.OnEvent != nil {
			told = raw.NewEvents()
			r.Set_events(told)
		}
		c.raw = raw.ContextCreate(r, out)
	})
	if err != nil {
		if told != nil {
			raw.DeleteEvents(told)
		}
		return nil, err
	}
	if told != nil {
		c.events = &events{done: make(chan struct{})}
		go c.events.pull(told, o.OnEvent) // must not hold c, which could never be forgotten then
	}
	runtime.SetFinalizer(c, func(c *Context) { raw.DeleteContext(c.raw) })
	return c, nil
}

// Backend names the backend: "cpu (AVX-512, VNNI)", "cpu (NEON)", or "cuda:0 (NAME)".
func (c *Context) Backend() (name string, err error) {
	if c == nil || c.raw == nil {
		return "", closed("context")
	}
	defer runtime.KeepAlive(c)
	err = simple(func(out raw.Outcome) { name = c.raw.Backend(out) })
	return name, err
}

// Close lets the context go. Models and stores opened on it stay usable and keep its threads until they
// are closed too. The error is that of OnEvent, if it panicked.
func (c *Context) Close() error {
	if c == nil || c.raw == nil {
		return nil
	}
	defer runtime.KeepAlive(c)
	c.raw.Close()
	if c.events != nil {
		return c.events.failure()
	}
	return nil
}

// events is the goroutine that calls OnEvent.
type events struct {
	mutex sync.Mutex
	err   error
	done  chan struct{} // closed when there will be no more events
}

func (e *events) failure() error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.err
}

// pull calls tell for each event until everything of the context is closed.
func (e *events) pull(told raw.Events, tell func(code Code, message string)) {
	event := raw.NewEvent()
	defer close(e.done)
	defer raw.DeleteEvents(told)
	defer raw.DeleteEvent(event)
	for told.Next(-1, event) == 1 {
		code, message := Code(event.GetCode()), spoken(event.GetMessage())
		if err := apart(func() error { tell(code, message); return nil }); err != nil {
			e.mutex.Lock()
			e.err = err
			e.mutex.Unlock()
			told.Stop()
			return
		}
	}
}
