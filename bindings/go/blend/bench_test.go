package blend_test

import (
	"sort"
	"testing"
	"time"

	"libblend.io/go/blend"
)

// BenchmarkFuse measures what the binding adds to a fuse: the time of Model.Fuse less that of
// blend_fuse inside it (FusionInfo.TTFT, from entry to the logits), as a share of the latter. The
// medians are robust where the machine is shared.
//
//	go test -bench Fuse -benchtime 3000x ./blend
func BenchmarkFuse(b *testing.B) {
	p := prompt(b)
	for name, options := range map[string]*blend.FuseOptions{
		"plain":    nil,
		"progress": {Progress: func(int64, int64) error { return nil }},
	} {
		b.Run(name, func(b *testing.B) {
			fuse(b, nil) // the chunks are stored
			added := make([]float64, 0, b.N)
			inside := make([]float64, 0, b.N)
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				begin := time.Now()
				f, err := model.Fuse(bg, store, p, options)
				took := time.Since(begin)
				if err != nil {
					b.Fatal(err)
				}
				info, err := f.Info()
				if err != nil {
					b.Fatal(err)
				}
				ok(b, f.Close())
				added = append(added, float64(took-info.TTFT)/float64(time.Microsecond))
				inside = append(inside, float64(info.TTFT)/float64(time.Microsecond))
			}
			b.ReportMetric(median(added), "added-us")
			b.ReportMetric(median(inside), "blend_fuse-us")
			b.ReportMetric(100*median(added)/median(inside), "added-%")
		})
	}
}

func median(values []float64) float64 {
	sort.Float64s(values)
	return values[len(values)/2]
}
