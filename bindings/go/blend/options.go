package blend

import (
	"runtime"

	"libblend/internal/raw"
)

// RatioAuto, as FuseOptions.Ratio, lets the controller choose: the largest ratio whose recompute
// hides behind loading, but never less than quality needs. It goes by FuseOptions.Machine, the
// store's reads so far, and FuseOptions.Profile.
const RatioAuto = -1

// RatioNone is a ratio of 0, where 0 stands for the default.
const RatioNone = -2

// Term is one policy of PolicyUnion, and its share of the budget relative to the others'.
type Term struct {
	Policy Policy
	Share  float64
}

// FuseOptions are options of Fuse, Extend and FuseBatch. The zero value has the defaults.
type FuseOptions struct {
	Policy     Policy  // 0: PolicyHKVD
	Metric     Metric  // 0: MetricV
	Norm       Norm    // 0: NormL2
	Relative   bool    // a deviation is divided by the stored row's own sum in that norm
	CheckLayer int     // where deviations are measured; 0: 1
	Ratio      float64 // recomputed share of the reused rows; 0: 0.15; RatioNone, RatioAuto
	OnMiss     Miss    // 0: MissPrecompute
	// ReserveTokens are rows kept free behind the prompt for what is generated. 0: 256; less than
	// 0: none.
	ReserveTokens int
	ChunkPrefix   []int32 // as given to Precompute for these chunks
	Tenant        string
	Seed          uint64       // of PolicyRandom
	CheckLayers   []CheckLayer // gradual filtering; nil: one, of CheckLayer and Ratio
	Terms         []Term       // of PolicyUnion
	// Score is of PolicyCallback: it writes Scores. An error stops the call, which gives it back.
	Score   func(*Scoring) error
	Machine *Machine // for RatioAuto
	// Profile is one of this model. Alone it is only compared with: Profile.Apply sets what it
	// chose.
	Profile    *Profile
	Correction Correction // 0: as the profile says
	// Threads are, of the context's compute threads, the most that the call and later ones on the
	// fusion have at a time. 0: all; of a fusion that is extended its own. Calls whose threads add up
	// to no more than the context's compute side by side.
	Threads int
	// Of PolicyAPE: what the scores of the rows in question are divided by, and what the logarithm of
	// the sum of their exponentials is multiplied by. 0: 0.9 each.
	APETemperature float64
	APEScale       float64
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
	if o.Policy != 0 {
		r.SetPolicy(uint(o.Policy))
	}
	if o.Metric != 0 {
		r.SetMetric(uint(o.Metric))
	}
	if o.Norm != 0 {
		r.SetNorm(uint(o.Norm))
	}
	r.SetRelative(flag(o.Relative))
	if o.CheckLayer != 0 {
		r.SetCheck_layer(count(o.CheckLayer))
	}
	if o.Ratio != 0 {
		r.SetRatio(ratio(o.Ratio))
	}
	if o.OnMiss != 0 {
		r.SetOn_miss(uint(o.OnMiss))
	}
	if o.ReserveTokens != 0 {
		reserve := o.ReserveTokens
		if reserve < 0 {
			reserve = 0
		}
		r.SetReserve_tokens(count(reserve))
	}
	r.Set_chunk_prefix(o.ChunkPrefix)
	r.SetTenant(o.Tenant)
	r.SetSeed(o.Seed)
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
	r.SetCorrection(uint(o.Correction))
	r.SetN_threads(count(o.Threads))
	if o.APETemperature != 0 {
		r.SetApe_temperature(o.APETemperature)
	}
	if o.APEScale != 0 {
		r.SetApe_scale(o.APEScale)
	}
	err := simple(func(out raw.Outcome) {
		if o.Machine != nil && o.Machine.raw != nil {
			r.Set_machine(o.Machine.raw, out)
		}
	})
	if err == nil {
		err = simple(func(out raw.Outcome) {
			if o.Profile != nil && o.Profile.raw != nil {
				r.Set_profile(o.Profile.raw, out)
			}
		})
	}
	if err != nil {
		raw.DeleteFuseOptions(r)
		return nil, nil, err
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
