package blend

import (
	"runtime"

	"libblend.io/go/internal/raw"
)

// RatioAuto, as FuseOptions.Ratio, lets the controller choose: the largest ratio whose recompute
// hides behind loading, but never less than quality needs. It goes by FuseOptions.Machine, the
// store's reads so far, and FuseOptions.Profile.
const RatioAuto = -1

// RatioFidelity, as FuseOptions.Ratio, is what a zero Ratio stands for: the ratio keeps
// FuseOptions.AgreementTarget, as far as the store's own checks have seen. See BLEND_RATIO_FIDELITY
// in blend.h.
const RatioFidelity = -2

// RatioNone is a ratio of 0, where 0 stands for the default.
const RatioNone = -3

// Term is one policy of PolicyUnion, and its share of the budget relative to the others'.
type Term struct {
	Policy Policy
	Share  float64
}

// FuseOptions are options of Fuse, Extend and FuseBatch. The zero value has the defaults.
type FuseOptions struct {
	//blend:fields fuse_options
	// ChunkPrefix is what these chunks were precomputed after. nil: the prompt's Head; empty and not nil:
	// nothing, as for chunks that were prefilled alone.
	ChunkPrefix []int32
	CheckLayers []CheckLayer // gradual filtering; nil: one, of CheckLayer and Ratio
	Terms       []Term       // of PolicyUnion
	// Score is of PolicyCallback: it writes Scores. An error stops the call, which gives it back.
	Score   func(*Scoring) error
	Machine *Machine // for RatioAuto
	// Profile is one of this model: it sets policy, metric, check layer, ratio, chunk prefix and correction where
	// these options leave them zero. Give its ChunkPrefix to Precompute too.
	Profile *Profile
	// Progress is told the layers done; an error stops the call, which gives it back.
	Progress func(done, total int64) error
}

func ratio(r float64) float64 {
	if r == RatioNone {
		return 0
	}
	return r
}

// make gives the shim's options, which the caller deletes, and who is told.
func (o *FuseOptions) make() (raw.FuseOptions, *listener, error) {
	r := raw.NewFuseOptions()
	if o == nil {
		return r, nil, nil
	}
	defer runtime.KeepAlive(o.Machine)
	defer runtime.KeepAlive(o.Profile)
	err := simple(func(out raw.Outcome) {
		if o.Profile != nil && o.Profile.raw != nil {
			r.Set_profile(o.Profile.raw, out)
		}
	})
	if err == nil {
		err = simple(func(out raw.Outcome) {
			if o.Machine != nil && o.Machine.raw != nil {
				r.Set_machine(o.Machine.raw, out)
			}
		})
	}
	if err != nil {
		raw.DeleteFuseOptions(r)
		return nil, nil, err
	}
	//blend:set fuse_options
	if o.ChunkPrefix != nil {
		r.Set_chunk_prefix(o.ChunkPrefix)
	}
	if len(o.CheckLayers) > 0 {
		layers := raw.NewCheckLayers()
		for _, layer := range o.CheckLayers {
			layers.Add(count(layer.Layer), layer.Ratio)
		}
		r.Set_check_layers(layers)
		raw.DeleteCheckLayers(layers)
	}
	for _, term := range o.Terms {
		r.Add_term(uint(term.Policy), term.Share)
	}
	l := listen(listener{progress: o.Progress, score: o.Score})
	if l == nil && o.scores() {
		l = &listener{}
	}
	return r, l, nil
}

// scores says whether a Score is needed.
func (o *FuseOptions) scores() bool {
	for _, term := range o.Terms {
		if term.Policy == PolicyCallback {
			return true
		}
	}
	return o.Policy == PolicyCallback
}
