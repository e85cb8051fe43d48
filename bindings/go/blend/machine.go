package blend

import (
	"context"
	"runtime"
	"time"

	"libblend.io/go/internal/raw"
)

// Machine tells how fast this machine prefills a model. See the package's notes on goroutines and
// lifetime.
type Machine struct {
	raw raw.Machine
}

// MachineOptions are options of OpenMachine. The zero value has the defaults.
type MachineOptions struct {
	//blend:fields machine_options
	// Progress is told the prefills done; an error stops the call, which gives it back.
	Progress func(done, total int64) error
}

// OpenMachine takes the measurement that the file path holds, if it is of this CPU, number of threads
// and model; otherwise it measures, best on an idle machine, and writes the file. path "": nothing is
// kept. options may be nil. Errors: ErrInvalidArgument, ErrIO, ErrOutOfMemory, ErrCancelled.
func OpenMachine(ctx context.Context, m *Model, path string, options *MachineOptions) (*Machine, error) {
	if m == nil || m.raw == nil {
		return nil, closed("model")
	}
	defer runtime.KeepAlive(m)
	o := given(options)
	c, err := begin(ctx, listen(listener{progress: o.Progress}))
	if err != nil {
		return nil, err
	}
	r := raw.NewMachineOptions()
	defer raw.DeleteMachineOptions(r)
	//blend:set machine_options
	c.set(r)
	opened := raw.MachineOpen(m.raw, path, r, c.out)
	if err := c.end(); err != nil {
		return nil, err
	}
	machine := &Machine{raw: opened}
	runtime.SetFinalizer(machine, func(m *Machine) { raw.DeleteMachine(m.raw) })
	return machine, nil
}

func (m *Machine) call(use func(r raw.Machine, out raw.Outcome)) error {
	if m == nil || m.raw == nil {
		return closed("machine")
	}
	defer runtime.KeepAlive(m)
	return simple(func(out raw.Outcome) { use(m.raw, out) })
}

// Info describes the measurement.
func (m *Machine) Info() (info MachineInfo, err error) {
	err = m.call(func(r raw.Machine, out raw.Outcome) { info = takenMachineInfo(r.Info(out)) })
	return info, err
}

// Point is one measured length and how long its prefill took.
type Point struct {
	Tokens  int
	Prefill time.Duration
}

// Points gives what was measured, ascending.
func (m *Machine) Points() (points []Point, err error) {
	err = m.call(func(r raw.Machine, out raw.Outcome) {
		n := takenMachineInfo(r.Info(out)).Points
		for i := 0; i < n && out.Code() >= 0; i++ {
			point := r.Point(uint64(i), out)
			points = append(points, Point{int(point.GetN_tokens()), time.Duration(point.GetPrefill_ns())})
			raw.DeleteMachinePoint(point)
		}
	})
	return points, err
}

// RecomputeTime estimates how long recomputing a share of a prompt's rows takes; a ratio of 1 is the
// whole prefill.
func (m *Machine) RecomputeTime(tokens int, ratio float64) (estimate time.Duration, err error) {
	err = m.call(func(r raw.Machine, out raw.Outcome) {
		estimate = time.Duration(r.Recompute_ns(bytesOf(int64(tokens)), ratio, out))
	})
	return estimate, err
}

// Storage is a place where chunks could be stored.
type Storage struct {
	BytesPerSecond float64 // of reading
	CostPerGBHour  float64 // of 1e9 bytes, in any currency
}

// AdviseOptions are options of Advise. The zero value has the defaults.
type AdviseOptions struct {
	//blend:fields advise_options
}

// Advise says of several storages how fast they would be and which is the cheapest that adds no delay
// (CacheBlend section 5.1). options may be nil. Errors: ErrInvalidArgument (names the storage).
func (m *Machine) Advise(storages []Storage, options *AdviseOptions) (advices []Advice, err error) {
	r := raw.NewAdviseOptions()
	defer raw.DeleteAdviseOptions(r)
	o := given(options)
	//blend:set advise_options
	list := raw.NewStorages()
	defer raw.DeleteStorages(list)
	for _, storage := range storages {
		list.Add(storage.BytesPerSecond, storage.CostPerGBHour)
	}
	err = m.call(func(machine raw.Machine, out raw.Outcome) {
		made := machine.Advise(list, r, out)
		defer raw.DeleteAdvices(made)
		if out.Code() < 0 {
			return
		}
		for i := int64(0); i < made.Size(); i++ {
			advices = append(advices, takenAdvice(made.At(i, out)))
		}
	})
	return advices, err
}

// Close lets the machine go; options that have it keep it.
func (m *Machine) Close() error {
	if m == nil || m.raw == nil {
		return nil
	}
	defer runtime.KeepAlive(m)
	m.raw.Close()
	return nil
}
