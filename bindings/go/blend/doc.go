// Package blend keeps the KV caches of text chunks in a store and fuses the caches of any chunks, in
// any order, into one prompt's cache, recomputing only the rows that the question attends to
// (after CacheBlend, Yao et al., EuroSys '25). A prompt made of retrieved chunks gets its first token
// several times sooner than by full prefill.
//
//	ctx      -> Context    the compute threads; one a process is usual
//	Context  -> Model      weights and tokenizer; immutable
//	Context  -> Store      a directory of chunks, which processes may share
//	Model.PrecomputeTexts  documents into the store, once
//	Model.FuseTexts        documents and a question into a Fusion
//	Fusion.Generate        the text that follows, a token at a time
//
// # Errors
//
// Every failure of the library is an *Error with a code and a sentence; errors.Is finds the
// sentinels (ErrNotFound and its like). An error that a callback returned comes back as it is, a
// panic of one as a *PanicError. Calls that were cancelled by their context.Context match both
// ErrCancelled and the context's error.
//
// # Lifetime
//
// Close frees what an object holds and may be called in any order, by any goroutine, twice; running
// calls are finished first, later ones return ErrClosed. Objects that are not closed are closed by a
// finalizer at some time. The garbage collector does not count the library's memory, so close models and fusions.
//
// # Goroutines
//
// Every method of every type may be called by any goroutine at any time. A Fusion is one
// conversation: methods that change it (Generate, Decode, Extend, Replace, Erase) do not wait for
// each other: a call that comes while another runs returns ErrInUse. Concurrent calls on one Context
// share its threads fairly.
//
// # Slices
//
// Tokens are []int32. They are read during the call and not kept. Methods that take a func and give
// it a slice (Logits, Deviation) lend the library's memory for the time of the call: copy values to
// keep, and do not write to it.
//
// # Callbacks
//
// They run one at a time, while the call waits. Those of Generate, Logits and Deviation run on the
// calling goroutine, and runtime.Goexit (testing.T.FailNow) in them ends it as anywhere else. The
// others have frames of C++ below the call, so they run on a goroutine of their own: Goexit ends that,
// and the call comes back with ErrGoexit.
package blend
