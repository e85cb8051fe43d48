package blend

import (
	"context"

	"libblend.io/go/internal/raw"
)

// RemoteCheck asks whether the remote tier's servers answer, and take us. Errors: ErrIO with their
// words, ErrInvalidArgument (the store has no remote tier); so do the following.
func (s *Store) RemoteCheck() error {
	return s.call(func(r raw.Store, out raw.Outcome) { r.Remote_check(out) })
}

// RemotePush puts chunks into the remote tier that it does not have, and gives how many. options may be
// nil. Errors: ErrNotFound and ErrCorrupt (one of the ids), ErrIO, ErrFull, ErrCancelled.
func (s *Store) RemotePush(ctx context.Context, options *TransferOptions) (int, error) {
	return s.transfer(ctx, options, func(r raw.Store, o raw.TransferOptions, out raw.Outcome) uint64 {
		return r.Remote_push(o, out)
	})
}

// RemotePull brings chunks from the remote tier that are not here, and gives how many. options may be nil.
// Errors: ErrNotFound and ErrCorrupt (one of the ids), ErrReadOnly, ErrIO, ErrFull, ErrCancelled.
func (s *Store) RemotePull(ctx context.Context, options *TransferOptions) (int, error) {
	return s.transfer(ctx, options, func(r raw.Store, o raw.TransferOptions, out raw.Outcome) uint64 {
		return r.Remote_pull(o, out)
	})
}

// RemoteChunk is a chunk of the remote tier.
type RemoteChunk struct {
	ID      ChunkID // "": its key there does not tell it
	Problem string  // "": it is sound
}

// RemoteVerify reads and checks chunks of the remote tier, and gives each, with its problem if it is
// damaged. options may be nil. Errors: ErrIO, ErrCancelled.
func (s *Store) RemoteVerify(ctx context.Context, options *TransferOptions) (chunks []RemoteChunk, err error) {
	_, err = s.transfer(ctx, options, func(r raw.Store, o raw.TransferOptions, out raw.Outcome) uint64 {
		list := r.Remote_verify(o, out)
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

// RemoteRemove removes a chunk from the remote tier; the store's own stays. Errors: ErrNotFound,
// ErrIO.
func (s *Store) RemoteRemove(id ChunkID) error {
	return s.call(func(r raw.Store, out raw.Outcome) { r.Remote_remove(string(id), out) })
}
