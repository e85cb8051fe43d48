package blend

import (
	"runtime"

	"libblend.io/go/internal/raw"
)

// Version is that of the loaded library: "major.minor.patch".
func Version() string { return raw.Version() }

// Context owns the compute threads, which concurrent calls share. See the package's notes on
// goroutines and lifetime.
type Context struct {
	raw raw.Context
	log *listening
}

// ContextOptions are options of NewContext. The zero value has the defaults.
type ContextOptions struct {
	//blend:fields ctx_options
	// Log is called with what happened and is the error of no call: a store that was opened, damage that became a
	// miss, a background write that failed. It runs on a goroutine of its own, one record at a time; if more than
	// 1024 wait, the oldest are dropped. If it panics or calls runtime.Goexit, it is called no more, and
	// Context.Close gives the error.
	Log func(LogRecord)
}

// NewContext starts the threads. options may be nil. Errors: ErrInvalidArgument, ErrNoDevice,
// ErrUnsupported, ErrOutOfMemory.
func NewContext(options *ContextOptions) (*Context, error) {
	o := given(options)
	r := raw.NewContextOptions()
	defer raw.DeleteContextOptions(r)
	//blend:set ctx_options
	c := &Context{}
	var told raw.LogQueue
	err := simple(func(out raw.Outcome) {
		if o.Log != nil {
			told = raw.NewLogQueue()
			r.Set_log(told)
		}
		c.raw = raw.ContextCreate(r, out)
	})
	if err != nil {
		if told != nil {
			raw.DeleteLogQueue(told)
		}
		return nil, err
	}
	if told != nil {
		c.log = &listening{done: make(chan struct{})}
		go c.log.pull(told, o.Log) // must not hold c, which could never be forgotten then
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
// are closed too. The error is that of ContextOptions.Log, if it panicked.
func (c *Context) Close() error {
	if c == nil || c.raw == nil {
		return nil
	}
	defer runtime.KeepAlive(c)
	c.raw.Close()
	if c.log != nil {
		return c.log.failure()
	}
	return nil
}
