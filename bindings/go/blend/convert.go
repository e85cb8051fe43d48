package blend

import (
	"time"
	"unsafe"

	"libblend.io/go/internal/raw"
)

// ChunkID names a stored chunk or fusion: 64 hexadecimal digits.
type ChunkID string

func unixTime(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

func chunkPrefix(r raw.Measurement) []int32 {
	n := r.N_chunk_prefix()
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(r.Chunk_prefix(int64(i)))
	}
	return tokens
}

// given is the struct that options points to; if nil, the zero value, which has the defaults.
func given[T any](options *T) T {
	if options == nil {
		return *new(T)
	}
	return *options
}

func flag(set bool) uint {
	if set {
		return 1
	}
	return 0
}

// element is the type of a View's elements.
type element interface{ int32 | uint32 | float32 }

// lent is the memory of a view, which must be of T.
func lent[T element](v raw.View) []T {
	if v.Size() == 0 {
		return nil
	}
	return unsafe.Slice((*T)(v.Data()), int(v.Size()))
}

// taken is a copy of a view's elements; the view is gone.
func taken[T element](v raw.View) []T {
	defer raw.DeleteView(v)
	return append([]T{}, lent[T](v)...)
}

// orNone is 0 for a negative n, where 0 itself stands for the default.
func orNone(n int) int {
	if n < 0 {
		return 0
	}
	return n
}

// count is a number of 32 bits; for one that does not fit it gives the largest, which the library refuses.
func count(n int) uint {
	if n < 0 || int64(n) > 0xffffffff {
		return 0xffffffff
	}
	return uint(n)
}

func bytesOf(n int64) uint64 {
	if n < 0 {
		return 0
	}
	return uint64(n)
}
