package blend

import (
	"runtime"

	"libblend.io/go/internal/raw"
)

// CallReader finds the calls of functions in one answer while it is generated, in the form that a chat
// template tells. One call at a time (ErrInUse). See the package's notes on goroutines and lifetime.
type CallReader struct {
	raw raw.CallReader
}

// CallReaderOptions are options of OpenCallReader. The zero value is any function, by the model's own template.
type CallReaderOptions struct {
	//blend:fields call_reader_options
}

// OpenCallReader begins an answer. options may be nil; the model may be closed then. Errors: ErrNotFound (there
// is no template), ErrFormat, ErrUnsupported, ErrInvalidArgument (also if Tools are no list of functions).
func OpenCallReader(m *Model, options *CallReaderOptions) (*CallReader, error) {
	o := given(options)
	r := raw.NewCallReaderOptions()
	defer raw.DeleteCallReaderOptions(r)
	//blend:set call_reader_options
	var opened raw.CallReader
	err := m.call(func(m raw.Model, out raw.Outcome) { opened = raw.CallReaderOpen(m, r, out) })
	if err != nil {
		return nil, err
	}
	reader := &CallReader{raw: opened}
	runtime.SetFinalizer(reader, func(c *CallReader) { raw.DeleteCallReader(c.raw) })
	return reader, nil
}

func (c *CallReader) do(use func(r raw.CallReader, out raw.Outcome)) error {
	if c == nil || c.raw == nil {
		return closed("call reader")
	}
	defer runtime.KeepAlive(c)
	return simple(func(out raw.Outcome) { use(c.raw, out) })
}

// Add takes the next piece of the answer: its token, -1 for none, and its text. It gives what of the answer so
// far is no part of a call; text that may become a call is held back, and what turns out to be none is
// given later as it was written. Errors: ErrInvalidArgument (the answer has ended).
func (c *CallReader) Add(token int32, text string) (shown string, err error) {
	err = c.do(func(r raw.CallReader, out raw.Outcome) { shown = r.Add(int(token), text, out) })
	return shown, err
}

// End is the same at the end of the answer. isCut says that the model did not end it, so that the last call may
// be cut.
func (c *CallReader) End(isCut bool) (shown string, err error) {
	err = c.do(func(r raw.CallReader, out raw.Outcome) { shown = r.End(isCut, out) })
	return shown, err
}

// Calls gives those so far.
func (c *CallReader) Calls() ([]CallInfo, error) {
	var n int64
	if err := c.do(func(r raw.CallReader, out raw.Outcome) { n = r.N_calls(out) }); err != nil {
		return nil, err
	}
	list := make([]CallInfo, n)
	for i := range list {
		err := c.do(func(r raw.CallReader, out raw.Outcome) { list[i] = takenCallInfo(r.Call(int64(i), out)) })
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Close frees the reader.
func (c *CallReader) Close() error {
	if c == nil || c.raw == nil {
		return nil
	}
	defer runtime.KeepAlive(c)
	c.raw.Close()
	return nil
}
