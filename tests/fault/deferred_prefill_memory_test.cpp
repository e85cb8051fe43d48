// Fails each allocation of DeferredPrefill::add: the chunk is refused, and nobody waits for it.
#include "engine/precompute.h"
#include "fault/failing_malloc.h"
#include "fusion/idle/deferred_prefill.h"
#include "support/engine_fixture.h"
#include "support/fake_store.h"

namespace blend {
namespace {

class DeferredPrefillMemory : public test::EngineTest {};

TEST_F(DeferredPrefillMemory, AChunkThatFindsNoMemoryIsRefused) {
  const auto store = std::make_shared<test::FakeStore>();
  const std::shared_ptr<Runtime> runtime(std::shared_ptr<Runtime>(), &model_->runtime());
  int refused = 0;
  for (uint64_t queued_before = 0; queued_before < 3; ++queued_before) {
    bool fired = true;
    for (uint64_t n = 1; fired && n < 50; ++n) {
      DeferredPrefill later(std::make_shared<IdleWorker>(runtime),
                            store);  // so that its thread has to be started, too
      const auto make = [&](uint64_t i) {
        DeferredChunk chunk;
        chunk.meta = describe_chunk(*model_, DType::f32, {}, "",
                                    tokens(9, 1000 * queued_before + 10 * n + i));
        return chunk;
      };
      bool queued = false;
      DeferredChunk last = make(9);
      const Sha256 id = last.meta.id;
      {
        const Foreground::Scope busy(runtime->foreground());  // its thread gets nowhere yet
        for (uint64_t i = 0; i < queued_before; ++i) ASSERT_TRUE(later.add(model_, make(i)));
        const test::FailingMalloc failing(n, false);
        queued = later.add(model_, std::move(last));
        fired = failing.fired();
      }
      // Once it is queued the failure may be a prefill's own.
      const Status flushed = later.flush();
      EXPECT_TRUE(flushed.is_ok() || fired) << n << flushed.message();
      if (flushed.is_ok()) {
        EXPECT_EQ(store->chunks.count(id), queued ? 1u : 0u) << n;
      }
      EXPECT_TRUE(queued || fired) << n;
      if (!queued) ++refused;
    }
  }
  EXPECT_GE(refused, 5) << "the thread, its place in the queue, and its id";
}

}  // namespace
}  // namespace blend
