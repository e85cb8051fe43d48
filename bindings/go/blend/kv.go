package blend

// #include <stdlib.h>
import "C"

import (
	"context"
	"runtime"
	"unsafe"

	"libblend.io/go/internal/raw"
)

// ModelDescription is what libblend must know of a model that the host runs itself. Models that differ
// must differ in Name or Fingerprint.
type ModelDescription struct {
	//blend:fields model_description
	RoPEFreqFactors []float32 // [RotaryDim / 2]; nil: all 1
}

// NewModelFromDescription makes a model without weights and tokenizer, for PutChunk, FindChunk and NewLayerwise. Errors:
// ErrInvalidArgument (names the member).
func NewModelFromDescription(c *Context, o ModelDescription) (*Model, error) {
	if c == nil || c.raw == nil {
		return nil, closed("context")
	}
	defer runtime.KeepAlive(c)
	r := raw.NewModelDescription()
	defer raw.DeleteModelDescription(r)
	//blend:set model_description
	for _, factor := range o.RoPEFreqFactors {
		r.Add_rope_freq_factor(factor)
	}
	var opened raw.Model
	if err := simple(func(out raw.Outcome) { opened = raw.ModelCreate_from_description(c.raw, r, out) }); err != nil {
		return nil, err
	}
	return newModel(opened), nil
}

// KVView is K and V of consecutive rows of one layer in memory that is not Go's: of KV, or of an engine
// that is called by cgo. The library keeps the addresses beyond the call (Layerwise.FetchKV). Element e of
// head h of row i lies at K + i*RowStride + h*HeadStride + e.
type KVView struct {
	K, V           unsafe.Pointer
	KBytes, VBytes int   // that may be read and written there
	Dtype          Dtype // 0: DtypeF32
	Unrotated      bool  // K is before RoPE; otherwise rotated to its row's place
	RowStride      int   // elements; 0: KVHeads * HeadDim
	HeadStride     int   // elements; 0: HeadDim
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
// C allocates it, so that the library may keep its address. Its slices must not be used after Close.
type KV struct {
	k, v  unsafe.Pointer
	bytes int
	dtype Dtype
}

// NewKV allocates memory for n elements of K and n of V.
func NewKV(n int, dtype Dtype) (*KV, error) {
	size := map[Dtype]int{DtypeF32: 4, DtypeF16: 2, DtypeBF16: 2}[dtype]
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

// Float32 gives K and V of a DtypeF32.
func (kv *KV) Float32() (k, v []float32) {
	if kv.k == nil || kv.dtype != DtypeF32 {
		return nil, nil
	}
	return unsafe.Slice((*float32)(kv.k), kv.bytes/4), unsafe.Slice((*float32)(kv.v), kv.bytes/4)
}

// Uint16 gives the bits of K and V of a DtypeF16 or DtypeBF16.
func (kv *KV) Uint16() (k, v []uint16) {
	if kv.k == nil || kv.dtype == DtypeF32 {
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

// PutChunk stores a chunk whose K and V the host's own engine computed: the rows of tokens, prefilled
// after options.Prefix. Rotated K is turned back from the positions first, first+1, ... options may be
// nil. Errors: ErrInvalidArgument, ErrContextLength, ErrNumeric (names layer and row), ErrFull,
// ErrReadOnly, ErrIO, ErrCancelled.
func (m *Model) PutChunk(ctx context.Context, s *Store, tokens []int32, layers []KVView, first int, options *PrecomputeOptions) (id ChunkID, err error) {
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
	id = ChunkID(m.raw.Put_chunk(s.raw, tokens, list, count(first), r, c.out))
	return id, c.end()
}
