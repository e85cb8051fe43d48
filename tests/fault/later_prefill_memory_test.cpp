// Fails each allocation of LaterPrefill::add: the chunk is refused, and nobody waits for it.
#include "engine/precompute.h"
#include "fault/failing_malloc.h"
#include "fusion/later_prefill.h"
#include "support/engine_fixture.h"
#include "support/fake_store.h"

namespace blend {
namespace {

class LaterPrefillMemory : public test::EngineTest {};

TEST_F(LaterPrefillMemory, AChunkThatFindsNoMemoryIsRefused) {
  const auto store = std::make_shared<test::FakeStore>();
  const std::shared_ptr<Runtime> runtime(std::shared_ptr<Runtime>(), &model_->runtime());
  int refused = 0;
  for (uint64_t n = 1;; ++n) {
    LaterPrefill later(runtime, store);  // so that its thread has to be started, too
    LaterChunk chunk;
    chunk.meta = describe_chunk(*model_, DType::f32, {}, "", tokens(9, n));
    const Sha256 id = chunk.meta.id;
    bool queued = false, fired = false;
    {
      const Foreground::Scope busy(runtime->foreground());  // the thread touches nothing yet
      const test::FailingMalloc failing(n, false);
      queued = later.add(model_, std::move(chunk));
      fired = failing.fired();
    }
    // Once it is queued the failure may be the prefill's own.
    const Status flushed = later.flush();
    EXPECT_TRUE(flushed.is_ok() || (queued && fired)) << n << flushed.message();
    EXPECT_EQ(store->chunks.count(id), queued && flushed.is_ok() ? 1u : 0u) << n;
    EXPECT_TRUE(queued || fired) << n;
    if (!queued) ++refused;
    if (!fired || n == 50) break;
  }
  EXPECT_GE(refused, 3) << "the thread, its place in the queue, and its id";
}

}  // namespace
}  // namespace blend
