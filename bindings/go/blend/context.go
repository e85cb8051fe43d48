package blend

import (
	"runtime"
	"sync"

	"libblend/internal/raw"
)

// Version is that of the library that is loaded: "major.minor.patch".
func Version() string { return raw.Version() }

// Context owns the compute threads, which concurrent calls share. See the package's notes on
// goroutines and lifetime.
type Context struct {
	raw    raw.Context
	events *events
}

// ContextOptions are options of NewContext. The zero value has the defaults.
type ContextOptions struct {
	Threads int    // compute threads; 0: as many as this process may use CPUs
	Backend string // "cpu" (also ""), "cuda", "cuda:N" or "auto"
	// PinThreads has each thread that the context starts keep to one CPU of those that the thread
	// which runs NewContext may use; the first of them is left to the callers.
	PinThreads bool
	// CacheDtype is what the K and V of prompts are kept as. KVAuto: F32 on a CPU, where F16
	// halves their memory, and BF16 on a GPU.
	CacheDtype KVDtype
	// OnEvent is told what is worth a log line and no call's error: damage found in a store and
	// treated as a miss, a background write that failed. It runs on a goroutine of its own, one
	// event at a time; of more than 1024 that wait, the oldest are dropped. A panic or runtime.Goexit
	// of it ends the telling and comes back from Context.Close.
	OnEvent func(code Code, message string)
}

// NewContext starts the threads. options may be nil. Errors: ErrInvalidArgument, ErrNoDevice,
// ErrUnsupported, ErrOutOfMemory.
func NewContext(options *ContextOptions) (*Context, error) {
	var o ContextOptions
	if options != nil {
		o = *options
	}
	c := &Context{}
	var told raw.Events
	err := simple(func(out raw.Outcome) {
		if o.OnEvent == nil {
			c.raw = raw.ContextCreate(count(o.Threads), o.PinThreads, uint(o.CacheDtype), o.Backend, out)
			return
		}
		told = raw.NewEvents()
		c.raw = raw.ContextCreate_with_events(count(o.Threads), o.PinThreads, uint(o.CacheDtype), o.Backend, told, out)
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

// Backend says what computes and with what: "cpu (AVX-512, VNNI)", "cpu (NEON)", or "cuda:0 (NAME)".
func (c *Context) Backend() (name string, err error) {
	if c == nil || c.raw == nil {
		return "", closed("context")
	}
	defer runtime.KeepAlive(c)
	err = simple(func(out raw.Outcome) { name = c.raw.Backend(out) })
	return name, err
}

// Close lets the context go. What was opened on it stays usable and keeps its threads until it is
// closed too. The error is the panic of OnEvent, if it did.
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

// events is what became of the telling.
type events struct {
	mutex sync.Mutex
	err   error
	done  chan struct{} // closed when nothing more will be told
}

func (e *events) failure() error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.err
}

// pull tells until everything of the context is closed.
func (e *events) pull(told raw.Events, tell func(code Code, message string)) {
	event := raw.NewEvent()
	defer close(e.done)
	defer raw.DeleteEvents(told)
	defer raw.DeleteEvent(event)
	for told.Next(-1, event) == 1 {
		code, message := Code(event.GetCode()), event.GetMessage()
		if err := apart(func() error { tell(code, message); return nil }); err != nil {
			e.mutex.Lock()
			e.err = err
			e.mutex.Unlock()
			told.Stop()
			return
		}
	}
}
