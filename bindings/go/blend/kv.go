package blend

// #include <stdlib.h>
import "C"

import (
	"context"
	"runtime"
	"unsafe"

	"libblend/internal/raw"
)

// RoPELayout says which elements of a head rotate together.
type RoPELayout uint32

const (
	RoPEInterleaved RoPELayout = 1 // pairs (0,1), (2,3), ...: GGUF llama files
	RoPEHalfSplit   RoPELayout = 2 // pairs (0,d/2), (1,d/2+1), ...: Hugging Face transformers
)

// ModelDescription is what libblend must know of a model that the host runs itself. Models that differ
// must differ in Name or Fingerprint.
type ModelDescription struct {
	Name            string // names the weights, such as "org/model@revision"
	Layers          int
	Heads           int // query heads, a multiple of KVHeads
	KVHeads         int
	HeadDim         int
	Vocab           int
	ContextLength   int        // rows a plan may have
	WeightDtype     KVDtype    // 0: KVF32; what KVAuto goes by
	RoPELayout      RoPELayout // 0: RoPEHalfSplit
	RotaryDim       int        // elements of a head that rotate; 0: HeadDim
	RoPETheta       float64    // 0: 10000
	RoPELinearScale float64    // 0: 1
	RoPEFreqFactors []float32  // [RotaryDim / 2]; nil: all 1
	Fingerprint     string     // 64 hexadecimal digits; "": made of all the others
}

// DescribeModel opens a model without weights and tokenizer, for PutKV, Find and NewPlan. Errors:
// ErrInvalidArgument (names the member).
func DescribeModel(c *Context, d ModelDescription) (*Model, error) {
	if c == nil || c.raw == nil {
		return nil, closed("context")
	}
	defer runtime.KeepAlive(c)
	r := raw.NewModelDescription()
	defer raw.DeleteModelDescription(r)
	r.SetName(d.Name)
	r.SetFingerprint(d.Fingerprint)
	for _, member := range []struct {
		value int
		set   func(uint)
	}{{d.Layers, r.SetN_layers}, {d.Heads, r.SetN_heads}, {d.KVHeads, r.SetN_kv_heads}, {d.HeadDim, r.SetHead_dim},
		{d.Vocab, r.SetN_vocab}, {d.ContextLength, r.SetContext_length}, {int(d.WeightDtype), r.SetWeight_dtype},
		{int(d.RoPELayout), r.SetRope_layout}, {d.RotaryDim, r.SetRotary_dim}} {
		if member.value != 0 {
			member.set(count(member.value))
		}
	}
	if d.RoPETheta != 0 {
		r.SetRope_theta(d.RoPETheta)
	}
	if d.RoPELinearScale != 0 {
		r.SetRope_linear_scale(d.RoPELinearScale)
	}
	for _, factor := range d.RoPEFreqFactors {
		r.Add_rope_freq_factor(factor)
	}
	var opened raw.Model
	if err := simple(func(out raw.Outcome) { opened = raw.ModelDescribe(c.raw, r, out) }); err != nil {
		return nil, err
	}
	return newModel(opened), nil
}

// KVView is K and V of consecutive rows of one layer in memory that is not Go's: of KV, or of an engine
// that is called by cgo. The library keeps the addresses beyond the call (Plan.Fetch). Element e of
// head h of row i lies at K + i*RowStride + h*HeadStride + e.
type KVView struct {
	K, V           unsafe.Pointer
	KBytes, VBytes int     // that may be read and written there
	Dtype          KVDtype // 0: KVF32
	Unrotated      bool    // K is before RoPE; otherwise rotated to its row's place
	RowStride      int     // elements; 0: KVHeads * HeadDim
	HeadStride     int     // elements; 0: HeadDim
}

func (v KVView) make() raw.KvView {
	r := raw.NewKvView(v.K, int64(v.KBytes), v.V, int64(v.VBytes))
	r.SetFlags(flag(v.Unrotated)) // BLEND_KV_VIEW_UNROTATED
	if v.Dtype != 0 {
		r.SetDtype(uint(v.Dtype))
	}
	r.SetRow_stride(int64(v.RowStride))
	r.SetHead_stride(int64(v.HeadStride))
	return r
}

// KV is memory for K and V of rows of one layer, [rows, KV heads, head dimension] each, zero at first.
// It is C's, so that the library may keep its address. Its slices are gone with Close.
type KV struct {
	k, v  unsafe.Pointer
	bytes int
	dtype KVDtype
}

// NewKV allocates. n is the number of elements of K, and of V.
func NewKV(n int, dtype KVDtype) (*KV, error) {
	size := map[KVDtype]int{KVF32: 4, KVF16: 2, KVBF16: 2}[dtype]
	if n <= 0 || size == 0 {
		return nil, invalid("%d elements of dtype %d cannot be allocated", n, dtype)
	}
	kv := &KV{k: C.calloc(C.size_t(n), C.size_t(size)), v: C.calloc(C.size_t(n), C.size_t(size)), bytes: n * size, dtype: dtype}
	if kv.k == nil || kv.v == nil {
		_ = kv.Close()
		return nil, ErrOutOfMemory
	}
	runtime.SetFinalizer(kv, (*KV).Close)
	return kv, nil
}

// Float32 gives K and V of a KVF32.
func (kv *KV) Float32() (k, v []float32) {
	if kv.k == nil || kv.dtype != KVF32 {
		return nil, nil
	}
	return unsafe.Slice((*float32)(kv.k), kv.bytes/4), unsafe.Slice((*float32)(kv.v), kv.bytes/4)
}

// Uint16 gives the bits of K and V of a KVF16 or KVBF16.
func (kv *KV) Uint16() (k, v []uint16) {
	if kv.k == nil || kv.dtype == KVF32 {
		return nil, nil
	}
	return unsafe.Slice((*uint16)(kv.k), kv.bytes/2), unsafe.Slice((*uint16)(kv.v), kv.bytes/2)
}

// View is of all of it. kv must not be closed, nor forgotten, while the view is used.
func (kv *KV) View() KVView {
	return KVView{K: kv.k, V: kv.v, KBytes: kv.bytes, VBytes: kv.bytes, Dtype: kv.dtype}
}

// Close frees the memory. Not for several goroutines.
func (kv *KV) Close() error {
	C.free(kv.k)
	C.free(kv.v)
	kv.k, kv.v = nil, nil
	return nil
}

// PutKV stores a chunk whose K and V the host's own engine computed: the rows of tokens, prefilled
// after options.Prefix. Rotated K is turned back from the positions first, first+1, ... options may be
// nil. Errors: ErrInvalidArgument, ErrContextLength, ErrNumeric (names layer and row), ErrFull,
// ErrReadOnly, ErrIO, ErrCancelled.
func (m *Model) PutKV(ctx context.Context, s *Store, tokens []int32, layers []KVView, first int, options *PrecomputeOptions) (id ChunkID, err error) {
	if m == nil || m.raw == nil {
		return "", closed("model")
	}
	if s == nil || s.raw == nil {
		return "", closed("store")
	}
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(s)
	set, r := options.make()
	defer raw.DeletePrecomputeOptions(r)
	list := raw.NewKvLayers()
	defer raw.DeleteKvLayers(list)
	for _, layer := range layers {
		view := layer.make()
		list.Add(view)
		raw.DeleteKvView(view)
	}
	c, err := begin(ctx, listen(listener{progress: set.Progress}))
	if err != nil {
		return "", err
	}
	c.set(r)
	id = ChunkID(m.raw.Put_kv(s.raw, tokens, list, count(first), r, c.out))
	return id, c.end()
}
