package blend

import (
	"context"

	"libblend/internal/raw"
)

// CheckRemote asks whether the remote tier's servers answer, and take us. Errors: ErrIO with their
// words, ErrInvalidArgument (the store has no remote tier); so do the following.
func (s *Store) CheckRemote() error {
	return s.call(func(r raw.Store, out raw.Outcome) { r.Check_remote(out) })
}

// Push puts chunks into the remote tier that it does not have, and gives how many. options may be
// nil. Errors: ErrNotFound and ErrCorrupt (one of the ids), ErrIO, ErrFull, ErrCancelled.
func (s *Store) Push(ctx context.Context, options *TransferOptions) (int, error) {
	return s.transfer(ctx, options, func(r raw.Store, o raw.TransferOptions, out raw.Outcome) uint64 {
		return r.Push(o, out)
	})
}

// Pull brings chunks from the remote tier that are not here, and gives how many. options may be nil.
// Errors: ErrNotFound and ErrCorrupt (one of the ids), ErrReadOnly, ErrIO, ErrFull, ErrCancelled.
func (s *Store) Pull(ctx context.Context, options *TransferOptions) (int, error) {
	return s.transfer(ctx, options, func(r raw.Store, o raw.TransferOptions, out raw.Outcome) uint64 {
		return r.Pull(o, out)
	})
}

// RemoteChunk is a chunk of the remote tier.
type RemoteChunk struct {
	ID      ChunkID // "": its key there does not tell it
	Problem string  // "": it is sound
}

// VerifyRemote reads and checks chunks of the remote tier, and gives each, with its problem if it is
// damaged. options may be nil. Errors: ErrIO, ErrCancelled.
func (s *Store) VerifyRemote(ctx context.Context, options *TransferOptions) (chunks []RemoteChunk, err error) {
	_, err = s.transfer(ctx, options, func(r raw.Store, o raw.TransferOptions, out raw.Outcome) uint64 {
		list := r.Verify_remote(o, out)
		defer raw.DeleteChunks(list)
		if out.Code() < 0 {
			return 0
		}
		n := list.Size()
		for i := int64(0); i < n; i++ {
			c := list.At(i, out)
			chunks = append(chunks, RemoteChunk{ChunkID(c.GetId()), c.GetProblem()})
			raw.DeleteChunkInfo(c)
		}
		return uint64(n)
	})
	return chunks, err
}

// RemoveRemote removes a chunk from the remote tier; the store's own stays. Errors: ErrNotFound,
// ErrIO.
func (s *Store) RemoveRemote(id ChunkID) error {
	return s.call(func(r raw.Store, out raw.Outcome) { r.Remove_remote(string(id), out) })
}
