package blend

import (
	"encoding/hex"
	"runtime"
	"time"

	"libblend.io/go/internal/raw"
)

// Store is a directory of chunks. Processes may share it, but not on a network file system. See the
// package's notes on goroutines and lifetime.
type Store struct {
	raw raw.Store
}

// StoreOptions are options of OpenStore. The zero value has the defaults.
type StoreOptions struct {
	//blend:fields store_options
	// Of the remote tier. Without any of them those of the environment.
	RemoteUser, RemotePassword string
	RemoteSealKey              []byte // 32 bytes
}

// OpenStore opens or creates the directory path. options may be nil. Errors: ErrNotFound, ErrIO,
// ErrFormat (not a store), ErrMismatch (another format version), ErrCorrupt, ErrUnsupported (the
// read mode), ErrInvalidArgument.
func OpenStore(c *Context, path string, options *StoreOptions) (*Store, error) {
	if c == nil || c.raw == nil {
		return nil, closed("context")
	}
	o := given(options)
	r := raw.NewStoreOptions()
	defer raw.DeleteStoreOptions(r)
	//blend:set store_options
	r.Set_secrets(o.RemoteUser, o.RemotePassword, hex.EncodeToString(o.RemoteSealKey))
	s := &Store{}
	err := simple(func(out raw.Outcome) { s.raw = raw.StoreOpen(c.raw, path, r, out) })
	runtime.KeepAlive(c)
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(s, func(s *Store) {
		r := s.raw
		go func() { // may wait for writes, which the other finalizers should not
			r.Close()
			raw.DeleteStore(r)
		}()
	})
	return s, nil
}

// use gives the raw store of one that may be nil: no store.
func (s *Store) use() (r raw.Store, done func(), err error) {
	if s == nil {
		none := raw.StoreNone()
		return none, func() { raw.DeleteStore(none) }, nil
	}
	if s.raw == nil {
		return nil, nil, closed("store")
	}
	return s.raw, func() { runtime.KeepAlive(s) }, nil
}

// call makes a call of an opened store.
func (s *Store) call(use func(r raw.Store, out raw.Outcome)) error {
	if s == nil || s.raw == nil {
		return closed("store")
	}
	defer runtime.KeepAlive(s)
	return simple(func(out raw.Outcome) { use(s.raw, out) })
}

// Flush waits until every background write so far is on disk, and gives the first error that one
// met since the last flush.
func (s *Store) Flush() error {
	return s.call(func(r raw.Store, out raw.Outcome) { r.Flush(out) })
}

// FilterOptions say which chunks are meant; the zero value means every one. In patterns * stands for any
// characters, ? for one.
type FilterOptions struct {
	Tenant *string // only this tenant's; nil: of all, "" is the one without a name
	//blend:fields filter_options
}

func (options *FilterOptions) make() raw.FilterOptions {
	r := raw.NewFilterOptions()
	o := given(options)
	//blend:set filter_options
	if o.Tenant != nil {
		r.Set_tenant(*o.Tenant)
	}
	return r
}

// List gives the chunks that the filter means (nil: every one), in the order of their ids. verify reads and
// checks every byte; a damaged chunk has a Problem and stays in the store. Errors: ErrInvalidArgument (Model is
// not of hexadecimal digits), ErrIO.
func (s *Store) List(filter *FilterOptions, verify bool) ([]ChunkInfo, error) {
	var infos []ChunkInfo
	f := filter.make()
	defer raw.DeleteFilterOptions(f)
	err := s.call(func(r raw.Store, out raw.Outcome) { infos = takenChunks(r.List(f, verify, out)) })
	return infos, err
}

// RemoveMatching removes the chunks that the filter means, which it gives. Errors: ErrInvalidArgument (a
// filter that says nothing; the label "*" means every chunk), ErrReadOnly, ErrIO.
func (s *Store) RemoveMatching(filter *FilterOptions) (removed []ChunkInfo, err error) {
	f := filter.make()
	defer raw.DeleteFilterOptions(f)
	err = s.call(func(r raw.Store, out raw.Outcome) { removed = takenChunks(r.Remove_matching(f, out)) })
	return removed, err
}

// SetCodecProfile has chunks of the profile's model that are put from here on with CodecRans rounded as the
// profile says: its LayerSteps times CodecStep. For as long as the store is open.
func (s *Store) SetCodecProfile(p *Profile) error {
	if p == nil || p.raw == nil {
		return closed("profile")
	}
	defer runtime.KeepAlive(p)
	return s.call(func(r raw.Store, out raw.Outcome) { r.Set_codec_profile(p.raw, out) })
}

// LabelOptions say what a chunk is called; nil leaves what is there, "" removes it.
type LabelOptions struct {
	Label  *string // by custom "document#part"
	Tags   *string // words with one space between, such as "lang=en draft"
	Tenant *string // another's chunk is not there; nil: whoever's it is
}

// SetLabel says what a chunk is called from now on. The rows are not touched. Errors: ErrInvalidArgument (too
// long, or more than a line), ErrNotFound, ErrReadOnly, ErrIO.
func (s *Store) SetLabel(id ChunkID, options *LabelOptions) error {
	o := given(options)
	made := raw.NewLabelOptions()
	defer raw.DeleteLabelOptions(made)
	if o.Label != nil {
		made.Set_label(*o.Label)
	}
	if o.Tags != nil {
		made.Set_tags(*o.Tags)
	}
	if o.Tenant != nil {
		made.Set_tenant(*o.Tenant)
	}
	return s.call(func(r raw.Store, out raw.Outcome) { r.Set_label(string(id), made, out) })
}

// takenChunks is a list as a slice; the list is gone.
func takenChunks(list raw.Chunks) []ChunkInfo {
	defer raw.DeleteChunks(list)
	out := raw.NewOutcome()
	defer raw.DeleteOutcome(out)
	var infos []ChunkInfo
	for i := int64(0); i < list.Size(); i++ {
		infos = append(infos, takenChunkInfo(list.At(i, out)))
	}
	return infos
}

// TenantOptions say whose chunk a call means.
type TenantOptions struct {
	Tenant *string // another's chunk is not there; nil: whoever's it is, "" is the one without a name
}

// Remove removes a chunk. options may be nil. Errors: ErrNotFound, ErrReadOnly, ErrIO.
func (s *Store) Remove(id ChunkID, options *TenantOptions) error {
	o := given(options)
	made := raw.NewTenantOptions()
	defer raw.DeleteTenantOptions(made)
	if o.Tenant != nil {
		made.Set_tenant(*o.Tenant)
	}
	return s.call(func(r raw.Store, out raw.Outcome) { r.Remove(string(id), made, out) })
}

// Stat gives the store's state.
func (s *Store) Stat() (stat StoreStat, err error) {
	err = s.call(func(r raw.Store, out raw.Outcome) { stat = takenStoreStat(r.Stat(out)) })
	return stat, err
}

// CodecStat returns the share of one codec. Errors: ErrInvalidArgument (for CodecDefault), ErrIO.
func (s *Store) CodecStat(codec Codec) (stat CodecStat, err error) {
	err = s.call(func(r raw.Store, out raw.Outcome) { stat = takenCodecStat(r.Codec_stat(uint(codec), out)) })
	return stat, err
}

// Close waits until background writes are on disk, unless a call that still runs needs the store,
// and gives the first error that one met since the last Flush.
func (s *Store) Close() error {
	if s == nil || s.raw == nil {
		return nil
	}
	defer runtime.KeepAlive(s)
	err := s.Flush()
	if e, ok := err.(*Error); ok && e.Code == errClosed {
		err = nil
	}
	s.raw.Close()
	return err
}
