package blend

import (
	"context"
	"runtime"

	"libblend.io/go/internal/raw"
)

// Profile is what calibration found out about one model: what chunks are best prefilled after, and
// which share of rows must be recomputed. See the package's notes on goroutines and lifetime.
type Profile struct {
	raw raw.Profile
}

// CalibrateOptions are options of Calibrate. The zero value has the defaults.
type CalibrateOptions struct {
	ChunkPrefixes [][]int32 // that are tried; nil: none, and BOS if the model has one
	Policies      []Policy  // PolicyHKVD, PolicyCascade, PolicyAttention; nil: those that fit the samples
	Metrics       []Metric  // nil: MetricVWeighed, the deviation weighed by attention
	CheckLayers   []int     // nil: CheckLayer
	Ratios        []float64 // nil: 0, 0.05, 0.1, 0.15, 0.2, 0.3
	//blend:fields calibrate_options
	// OnMeasurement is told every line as it is measured, Progress the prefills and fuses done. An
	// error stops the call, which gives it back.
	OnMeasurement func(Measurement) error
	Progress      func(done, total int64) error
}

func (o *CalibrateOptions) make() (raw.CalibrateOptions, *listener) {
	r := raw.NewCalibrateOptions()
	if o == nil {
		return r, nil
	}
	//blend:set calibrate_options
	for _, prefix := range o.ChunkPrefixes {
		r.Add_chunk_prefix(prefix)
	}
	for _, policy := range o.Policies {
		r.Add_policy(uint(policy))
	}
	for _, layer := range o.CheckLayers {
		r.Add_check_layer(count(layer))
	}
	for _, metric := range o.Metrics {
		r.Add_metric(uint(metric))
	}
	for _, value := range o.Ratios {
		r.Add_ratio(ratio(value))
	}
	return r, listen(listener{progress: o.Progress, measurement: o.OnMeasurement})
}

// Calibrate measures sample prompts, whose chunks must be given as tokens, and writes a profile to
// path, whole or not at all; "" is beside the model. false: it is written, but no ratio kept the limits. options may be nil.
// Errors: ErrInvalidArgument (names the sample or option), ErrContextLength, ErrNumeric, ErrIO,
// ErrOutOfMemory, ErrCancelled.
func (m *Model) Calibrate(ctx context.Context, samples []Prompt, path string, options *CalibrateOptions) (trusted bool, err error) {
	if m == nil || m.raw == nil {
		return false, closed("model")
	}
	defer runtime.KeepAlive(m)
	made, err := makeSamples(samples)
	if err != nil {
		return false, err
	}
	defer raw.DeleteSamples(made)
	r, l := options.make()
	defer raw.DeleteCalibrateOptions(r)
	c, err := begin(ctx, l)
	if err != nil {
		return false, err
	}
	c.set(r)
	trusted = raw.ProfileCalibrate(m.raw, made, r, path, c.out)
	return trusted, c.end()
}

// OpenProfile opens a file of Calibrate. An empty path is the one that lies beside the model:
// FILE.profile of a file, DIRECTORY/blend.profile of a directory. Errors: ErrNotFound, ErrIO, ErrFormat, ErrCorrupt,
// ErrMismatch (of another model or format version), ErrNumeric, ErrOutOfMemory.
func OpenProfile(m *Model, path string) (*Profile, error) {
	p := &Profile{}
	err := m.call(func(r raw.Model, out raw.Outcome) { p.raw = raw.ProfileOpen(r, path, out) })
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(p, func(p *Profile) { raw.DeleteProfile(p.raw) })
	return p, nil
}

func (p *Profile) call(use func(r raw.Profile, out raw.Outcome)) error {
	if p == nil || p.raw == nil {
		return closed("profile")
	}
	defer runtime.KeepAlive(p)
	return simple(func(out raw.Outcome) { use(p.raw, out) })
}

// Info gives what the calibration chose.
func (p *Profile) Info() (info ProfileInfo, err error) {
	err = p.call(func(r raw.Profile, out raw.Outcome) { info = takenProfileInfo(r.Info(out)) })
	return info, err
}

// ChunkPrefix gives the prefix that it chose, for Precompute.
func (p *Profile) ChunkPrefix() (tokens []int32, err error) {
	err = p.call(func(r raw.Profile, out raw.Outcome) { tokens = taken[int32](r.Chunk_prefix(out)) })
	return tokens, err
}

// LayerSteps gives how much coarser or finer than others CodecRans is to round each layer
// (Store.UseProfile); none: all layers alike.
func (p *Profile) LayerSteps() (steps []float32, err error) {
	err = p.call(func(r raw.Profile, out raw.Outcome) { steps = taken[float32](r.Layer_steps(out)) })
	return steps, err
}

// Measurements gives the table that it was chosen from.
func (p *Profile) Measurements() (lines []Measurement, err error) {
	err = p.call(func(r raw.Profile, out raw.Outcome) {
		n := takenProfileInfo(r.Info(out)).Measurements
		for i := 0; i < n && out.Code() >= 0; i++ {
			lines = append(lines, takenMeasurement(r.Measurement(int64(i), out)))
		}
	})
	return lines, err
}

// Drift gives the shares of the squared drift of K and of V at a layer that its map took away where
// it was fitted. ErrNotFound: the layer has no map.
func (p *Profile) Drift(layer int) (k, v float64, err error) {
	err = p.call(func(r raw.Profile, out raw.Outcome) {
		shares := r.Drift(count(layer), out)
		defer raw.DeleteDrift(shares)
		k, v = shares.GetK(), shares.GetV()
	})
	return k, v, err
}

// CodecCost gives what storing chunks with a codec that rounds costs, beside the fuse itself. ErrNotFound: the codec was
// not measured.
func (p *Profile) CodecCost(codec Codec) (cost CodecCost, err error) {
	err = p.call(func(r raw.Profile, out raw.Outcome) { cost = takenCodecCost(r.Codec_cost(uint(codec), out)) })
	return cost, err
}

// VerifyOptions are options of Verify. The zero value has the defaults.
type VerifyOptions struct {
	Ratios []float64 // besides the profile's own; nil: 0, 0.05, 0.1, 0.15, 0.2, 0.3
	//blend:fields verify_options
	// As in CalibrateOptions.
	OnMeasurement func(Measurement) error
	Progress      func(done, total int64) error
}

func (o *VerifyOptions) make() (raw.VerifyOptions, *listener) {
	r := raw.NewVerifyOptions()
	if o == nil {
		return r, nil
	}
	//blend:set verify_options
	for _, value := range o.Ratios {
		r.Add_ratio(ratio(value))
	}
	return r, listen(listener{progress: o.Progress, measurement: o.OnMeasurement})
}

// Verify measures the profile's choice on samples that it was not made from. Verdict.Trusted says
// whether they keep the limits. options may be nil. Errors: as Calibrate, and ErrMismatch (the
// profile is of another model).
func (m *Model) Verify(ctx context.Context, p *Profile, samples []Prompt, options *VerifyOptions) (verdict Verdict, err error) {
	if m == nil || m.raw == nil {
		return verdict, closed("model")
	}
	if p == nil || p.raw == nil {
		return verdict, closed("profile")
	}
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(p)
	made, err := makeSamples(samples)
	if err != nil {
		return verdict, err
	}
	defer raw.DeleteSamples(made)
	r, l := options.make()
	defer raw.DeleteVerifyOptions(r)
	c, err := begin(ctx, l)
	if err != nil {
		return verdict, err
	}
	c.set(r)
	verdict = takenVerdict(p.raw.Verify(m.raw, made, r, c.out))
	return verdict, c.end()
}

// Close lets the profile go; fuses that use it keep it.
func (p *Profile) Close() error {
	if p == nil || p.raw == nil {
		return nil
	}
	defer runtime.KeepAlive(p)
	p.raw.Close()
	return nil
}
