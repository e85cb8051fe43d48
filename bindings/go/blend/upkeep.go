package blend

import (
	"context"
	"runtime"
	"time"

	"libblend.io/go/internal/raw"
)

// Wait waits for the background write of a chunk: of Fusion.Save, of a Precompute in the Background,
// of a fuse that missed. timeout < 0: for as long as it takes. false: it is not done yet. The error is
// the write's own, or ErrNotFound: the chunk is neither stored nor on its way. It cannot be cancelled:
// give a timeout and ask again.
func (s *Store) Wait(id ChunkID, timeout time.Duration) (done bool, err error) {
	ms := int64(-1)
	if timeout >= 0 {
		ms = int64((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	err = s.call(func(r raw.Store, out raw.Outcome) { done = r.Wait(string(id), ms, out) })
	return done, err
}

func makeIDs(ids []ChunkID) raw.ChunkIds {
	r := raw.NewChunkIds()
	for _, id := range ids {
		r.Add(string(id))
	}
	return r
}

// Prefetch tells the chunks that coming prompts need, in the order of need: they are read ahead into
// memory, as far as RAMBytes go, and leave last. It takes the place of the list before; none lets all
// go. Returns at once.
func (s *Store) Prefetch(ids []ChunkID) error {
	r := makeIDs(ids)
	defer raw.DeleteChunkIds(r)
	return s.call(func(store raw.Store, out raw.Outcome) { store.Prefetch(r, out) })
}

// SetPinned keeps a chunk from being evicted and from expiring, for all processes, or lets it go again.
// Errors: ErrNotFound, ErrReadOnly, ErrIO.
func (s *Store) SetPinned(id ChunkID, pinned bool) error {
	return s.call(func(r raw.Store, out raw.Outcome) { r.Set_pinned(string(id), pinned, out) })
}

// Evict evicts what has expired and then, by the store's policy, until at most target bytes are
// stored. It gives how many chunks left. Errors: ErrFull (pinned or needed chunks are in the way; all
// others are gone), ErrReadOnly, ErrIO.
func (s *Store) Evict(target int64) (n int, err error) {
	err = s.call(func(r raw.Store, out raw.Outcome) { n = int(r.Evict(bytesOf(target), out)) })
	return n, err
}

// TenantUse is what the chunks of one tenant take and may take.
type TenantUse struct {
	Chunks      int
	StoredBytes int64
	QuotaBytes  int64 // 0: no bound but the store's
}

// SetTenantQuota bounds the chunks of one tenant, for all processes; 0: StoreOptions.TenantQuotaBytes
// again. Errors: ErrInvalidArgument (the tenant ""), ErrReadOnly, ErrIO.
func (s *Store) SetTenantQuota(tenant string, quota int64) error {
	return s.call(func(r raw.Store, out raw.Outcome) { r.Set_tenant_quota(tenant, bytesOf(quota), out) })
}

// TenantUsage gives what a tenant's chunks take now.
func (s *Store) TenantUsage(tenant string) (use TenantUse, err error) {
	err = s.call(func(r raw.Store, out raw.Outcome) {
		made := r.Tenant_usage(tenant, out)
		defer raw.DeleteTenantUse(made)
		use = TenantUse{int(made.GetN_chunks()), int64(made.GetStored_bytes()), int64(made.GetQuota_bytes())}
	})
	return use, err
}

// Repair reads and checks every byte and removes what is damaged, which it gives. Errors: ErrReadOnly,
// ErrIO, ErrCorrupt (a chunk cannot be freed safely).
func (s *Store) Repair() (removed []ChunkInfo, err error) {
	err = s.call(func(r raw.Store, out raw.Outcome) { removed = takenChunks(r.Repair(out)) })
	return removed, err
}

// Copy writes a consistent copy, as small as its chunks, into another directory. Errors:
// ErrInvalidArgument (there is a store in it), ErrIO, ErrFull.
func (s *Store) Copy(path string) error {
	return s.call(func(r raw.Store, out raw.Outcome) { r.Copy(path, out) })
}

// TransferOptions are options of Export and Import. The zero value has the defaults.
type TransferOptions struct {
	IDs []ChunkID // Export: which; nil: all that are sound
	//blend:fields transfer_options
	// Progress is told the chunks of Export, the file's bytes of Import; an error stops the call,
	// which gives it back.
	Progress func(done, total int64) error
}

// Export writes chunks to a file, which appears whole or not at all, and gives how many. options may
// be nil. Errors: ErrNotFound and ErrCorrupt (one of the ids), ErrIO, ErrFull, ErrCancelled.
func (s *Store) Export(ctx context.Context, path string, options *TransferOptions) (int, error) {
	return s.transfer(ctx, options, func(r raw.Store, o raw.TransferOptions, out raw.Outcome) uint64 {
		return r.Export_to(path, o, out)
	})
}

// Import puts the chunks of such a file, and gives how many, also when it fails: they stay. Ids are
// taken on trust: import files of those whose chunks you would use. options may be nil. Errors:
// ErrNotFound, ErrFormat, ErrMismatch (its version), ErrCorrupt, ErrFull, ErrReadOnly, ErrIO,
// ErrCancelled.
func (s *Store) Import(ctx context.Context, path string, options *TransferOptions) (int, error) {
	return s.transfer(ctx, options, func(r raw.Store, o raw.TransferOptions, out raw.Outcome) uint64 {
		return r.Import_from(path, o, out)
	})
}

func (s *Store) transfer(ctx context.Context, options *TransferOptions,
	use func(raw.Store, raw.TransferOptions, raw.Outcome) uint64) (int, error) {
	if s == nil || s.raw == nil {
		return 0, closed("store")
	}
	defer runtime.KeepAlive(s)
	o := given(options)
	r := raw.NewTransferOptions()
	defer raw.DeleteTransferOptions(r)
	//blend:set transfer_options
	ids := makeIDs(o.IDs)
	r.Set_ids(ids)
	raw.DeleteChunkIds(ids)
	c, err := begin(ctx, listen(listener{progress: o.Progress}))
	if err != nil {
		return 0, err
	}
	c.set(r)
	n := use(s.raw, r, c.out)
	return int(n), c.end()
}

// CompactStore makes the data file of the store in a directory as small as its chunks, and gives its
// size before and after. Errors: ErrBusy (a process, this one included, has it open), ErrNotFound,
// ErrCorrupt, ErrIO, ErrFull.
func CompactStore(path string) (before, after int64, err error) {
	err = simple(func(out raw.Outcome) {
		made := raw.StoreCompact(path, out)
		defer raw.DeleteCompacted(made)
		before, after = int64(made.GetBytes_before()), int64(made.GetBytes_after())
	})
	return before, after, err
}

// Metrics is the text that Prometheus scrapes (exposition format 0.0.4), each line with the label
// store="name".
func (s *Store) Metrics(name string) (text string, err error) {
	err = s.call(func(r raw.Store, out raw.Outcome) { text = r.Metrics(name, out) })
	return text, err
}

// Figure is one figure of a store, for a host's own metrics system.
type Figure struct {
	Name    string // as Prometheus has it
	Labels  string // such as tier="ram", or ""
	Help    string
	Counter bool // it only grows while the store is open; otherwise it is a gauge
	Value   float64
}

// ListMetrics gives every figure of Stat; those of one name come together.
func (s *Store) ListMetrics() (figures []Figure, err error) {
	err = s.call(func(r raw.Store, out raw.Outcome) {
		list := r.List_metrics(out)
		defer raw.DeleteMetrics(list)
		if out.Code() < 0 {
			return
		}
		for i := int64(0); i < list.Size(); i++ {
			m := list.At(i, out)
			figures = append(figures, Figure{m.GetName(), m.GetLabels(), m.GetHelp(), m.GetCounter(), m.GetValue()})
			raw.DeleteMetric(m)
		}
	})
	return figures, err
}
