/**
 * libblend for Java: prompts made of retrieved chunks whose KV caches were computed before.
 *
 * <p>A {@link io.libblend.Context} computes; a {@link io.libblend.Model} and a {@link io.libblend.Store}
 * are opened with it; {@link io.libblend.Model#precomputeTexts} puts documents into the store;
 * {@link io.libblend.Model#fuseTexts} makes a {@link io.libblend.Fusion} of documents and a question,
 * which generates the answer. Beneath them {@link io.libblend.Model#fuse} takes a {@link io.libblend.Prompt} of segments.
 *
 * <p><b>Closing.</b> Everything that holds memory is {@link java.lang.AutoCloseable}, may be closed in any
 * order and more than once, and is freed by a {@link java.lang.ref.Cleaner} if it is forgotten. What is
 * used after it was closed throws {@link io.libblend.ClosedException}, an {@link
 * java.lang.IllegalStateException}.
 *
 * <p><b>Threads.</b> Contexts, models, tokenizers, stores, profiles and machines may be used by any number
 * of threads at once. So may a fusion or layerwise fuse, but a call that changes one while another call runs is
 * refused at once with {@link io.libblend.InUseException}: nothing waits. Options and builders belong to
 * one thread until they are given to a call. {@link io.libblend.Cancel#request()} may come from anywhere,
 * and {@link java.lang.Thread#interrupt()} cancels what the thread waits for: the call throws {@link
 * io.libblend.CancelledException} and the thread stays interrupted.
 *
 * <p><b>Failures</b> are unchecked: a subclass of {@link io.libblend.BlendException} for each code of the
 * library. What a callback throws comes out of the call that it was made by, unchanged.
 */
package io.libblend;
