package io.libblend;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Weights, tokenizer and description of one model. Immutable, thread-safe. */
public final class Model implements AutoCloseable {
  final RawModel raw;

  private Model(RawModel raw) {
    this.raw = raw;
  }

  /**
   * Opens a model with the defaults.
   *
   * @param context that computes
   * @param file a GGUF file or a Hugging Face directory
   * @return to be closed
   */
  public static Model open(Context context, Path file) {
    return open(context, file, new Options());
  }

  /**
   * Opens a model; every offset and shape in it is checked.
   *
   * @param context that computes
   * @param file a GGUF file or a Hugging Face directory
   * @param options how
   * @return to be closed
   * @throws NotFoundException if there is no such file
   * @throws FormatException if it is not what it claims to be
   * @throws UnsupportedException if it asks for what libblend does not do
   */
  public static Model open(Context context, Path file, Options options) {
    return options.call(
        new RawModelOptions(options.raw),
        call -> new Model(RawModel.open(context.raw, file.toString(), call)));
  }

  /**
   * A model that the host runs itself: for {@link #putChunk}, {@link #findChunk} and {@link Layerwise}.
   *
   * @param context that computes
   * @param description of the model
   * @return without weights and tokenizer; to be closed
   */
  public static Model createFromDescription(Context context, ModelDescription description) {
    return new Model(RawModel.createFromDescription(context.raw, description.raw));
  }

  /**
   * What the model is.
   *
   * @return the same every time
   */
  public ModelInfo info() {
    return ModelInfo.of(raw.info());
  }

  /**
   * The LoRA adapters that it was opened with.
   *
   * @return in the order of the options
   */
  public List<LoraInfo> loras() {
    List<LoraInfo> list = new ArrayList<>();
    long n = info().nLoras();
    for (long i = 0; i < n; ++i) {
      list.add(LoraInfo.of(raw.lora(i)));
    }
    return list;
  }

  /**
   * What the model's own chat template has a place for, and how calls of functions are written by it.
   *
   * @return the same every time
   * @throws NotFoundException if the model has no template
   */
  public TemplateInfo templateInfo() {
    return templateInfo("");
  }

  /**
   * What a chat template has a place for.
   *
   * @param source Jinja; "" is the model's own
   * @return the same every time
   * @throws FormatException if it cannot be parsed
   */
  public TemplateInfo templateInfo(String source) {
    return TemplateInfo.of(raw.templateInfo(source));
  }

  /**
   * The model's tokenizer.
   *
   * @return open as long as the model
   */
  public Tokenizer tokenizer() {
    return new Tokenizer(raw);
  }

  /**
   * A conversation as the model's chat template puts it.
   *
   * @param chat messages and documents
   * @return to be fused
   * @throws NotFoundException if the model has no template
   * @throws UnsupportedException if the template uses what libblend does not know, which it names
   */
  public Prompt chat(Chat chat) {
    return chat(chat, new ChatOptions());
  }

  /**
   * The same with options.
   *
   * @param chat messages and documents
   * @param options how
   * @return to be fused
   */
  public Prompt chat(Chat chat, ChatOptions options) {
    return new Prompt(Running.call(options.cancel, call -> raw.chat(chat.raw, options.raw, call)));
  }

  /**
   * What {@link #chat} renders, before it is tokenized.
   *
   * @param chat messages and documents
   * @param options how
   * @return U+FFFC stands for a stored chunk
   */
  public String chatText(Chat chat, ChatOptions options) {
    return Running.call(options.cancel, call -> raw.chatText(chat.raw, options.raw, call));
  }

  // ---- Embeddings

  /**
   * Vectors of texts with the defaults.
   *
   * @param texts at least one token each
   * @return [texts][dimensions]
   */
  public float[][] embed(List<String> texts) {
    return embed(texts, new EmbedOptions());
  }

  /**
   * Vectors of texts, by which documents are found. Instructions that the model wants before a question or a
   * document are the caller's to put there.
   *
   * @param texts what the tokenizer puts around a text is put around each
   * @param options how
   * @return [texts][dimensions]
   * @throws ContextLengthException if a text is too long, which it names
   * @throws UnsupportedException if the file asks for a pooling that is not known
   */
  public float[][] embed(List<String> texts, EmbedOptions options) {
    RawEmbedInputs inputs = new RawEmbedInputs();
    texts.forEach(text -> inputs.addText(Text.bytes(text)));
    return embed(inputs, options);
  }

  /**
   * The same of texts that are tokens already; nothing is put around them.
   *
   * @param texts tokens of each
   * @param options how
   * @return [texts][dimensions]
   */
  public float[][] embedTokens(List<int[]> texts, EmbedOptions options) {
    RawEmbedInputs inputs = new RawEmbedInputs();
    texts.forEach(tokens -> inputs.addTokens(Tokens.of(tokens)));
    return embed(inputs, options);
  }

  private float[][] embed(RawEmbedInputs inputs, EmbedOptions options) {
    try {
      int n = (int) inputs.size();
      float[] values =
          options.call(new RawEmbedOptions(options.raw), call -> Views.floats(raw.embed(inputs, call)));
      float[][] vectors = new float[n][];
      for (int i = 0; i < n; i++) {
        int width = values.length / n;
        vectors[i] = java.util.Arrays.copyOfRange(values, i * width, (i + 1) * width);
      }
      return vectors;
    } finally {
      inputs.delete();
    }
  }

  // ---- Texts

  /**
   * Fuses documents and a question with the defaults.
   *
   * @param store of the documents; null: all is computed
   * @param documents passages of a few hundred tokens each
   * @param question of a user
   * @return to be closed
   */
  public Fusion fuseTexts(Store store, List<String> documents, String question) {
    return fuseTexts(store, Document.of(documents), question, new TextOptions(), new FuseOptions());
  }

  /**
   * Fuses documents and a question, all of them text: BOS, the chat template, tokens, chunks and what they are
   * looked for after are the library's. What {@link #precomputeTexts} stored is loaded; another document is
   * computed, and stored afterwards.
   *
   * @param store of the documents; null: all is computed
   * @param documents passages of a few hundred tokens each
   * @param question of a user
   * @param texts how they are put
   * @param options how they are fused
   * @return to be closed
   * @throws InvalidArgumentException if a document has no text, which it names
   * @throws ContextLengthException if there is too much text
   * @throws CancelledException by {@link Cancel}, or when this thread is interrupted
   */
  public Fusion fuseTexts(
      Store store, List<Document> documents, String question, TextOptions texts, FuseOptions options) {
    RawTexts given = Document.raw(documents);
    try {
      given.setQuestion(question);
      return options.call(
          new RawFuseOptions(options.raw),
          call -> new Fusion(RawFusion.fuseTexts(raw, Store.raw(store), given, texts.raw, call)));
    } finally {
      given.delete();
    }
  }

  /**
   * One turn of a conversation.
   *
   * @param role as the chat template knows it: system, user, assistant
   * @param content what was said
   * @param members a JSON object: what it has besides, such as tool_calls or tool_call_id, as OpenAI's API has
   *     them; empty: nothing
   */
  public record Message(String role, String content, String members) {
    /**
     * A turn of words.
     *
     * @param role as the chat template knows it
     * @param content what was said
     */
    public Message(String role, String content) {
      this(role, content, "");
    }
  }

  /**
   * The same of a conversation, as the chat template puts it. Where that has no place for documents they stand
   * before the last message of the role user.
   *
   * @param store of the documents; null: all is computed
   * @param messages at least one
   * @param documents passages of a few hundred tokens each
   * @param texts how they are put; the question's template is not used
   * @param options how they are fused
   * @return to be closed
   * @throws NotFoundException if there is no chat template
   */
  public Fusion fuseMessages(
      Store store, List<Message> messages, List<Document> documents, TextOptions texts, FuseOptions options) {
    RawTexts given = Document.raw(documents);
    try {
      for (Message message : messages) {
        given.addMessage(message.role(), message.content(), message.members());
      }
      return options.call(
          new RawFuseOptions(options.raw),
          call -> new Fusion(RawFusion.fuseMessages(raw, Store.raw(store), given, texts.raw, call)));
    } finally {
      given.delete();
    }
  }

  /**
   * The prompt of {@link #fuseTexts}, for {@link #fuseBatch}, {@link Fusion#extend} and {@link Layerwise}.
   *
   * @param documents passages of a few hundred tokens each
   * @param question of a user
   * @param texts how they are put
   * @return to be fused
   */
  public Prompt textPrompt(List<Document> documents, String question, TextOptions texts) {
    RawTexts given = Document.raw(documents);
    try {
      given.setQuestion(question);
      return new Prompt(Running.call(null, cancel -> raw.textPrompt(given, texts.raw, cancel)));
    } finally {
      given.delete();
    }
  }

  /**
   * Stores documents with the defaults.
   *
   * @param store where
   * @param documents passages of a few hundred tokens each
   * @return what became of each, in their order
   */
  public List<CorpusRecord> precomputeTexts(Store store, List<String> documents) {
    return precomputeTexts(store, Document.of(documents), new TextOptions(), new CorpusOptions());
  }

  /**
   * Stores documents for {@link #fuseTexts} and {@link #fuseMessages}, so that they serve each other as context.
   * A call that was stopped goes on where it ended when it is made again.
   *
   * @param store where
   * @param documents passages of a few hundred tokens each
   * @param texts how the prompts that will hold them are put
   * @param options how they are stored; without a chunk prefix it is the head of these prompts
   * @return what became of each, in their order
   * @throws UnsupportedException if the chat template changes every document
   * @throws FullException if the quota or the disk is exhausted
   * @throws ReadOnlyException if the store is
   */
  public List<CorpusRecord> precomputeTexts(
      Store store, List<Document> documents, TextOptions texts, CorpusOptions options) {
    RawTexts given = Document.raw(documents);
    try {
      return options.call(
          new RawCorpusOptions(options.raw),
          call -> CorpusRecord.of(raw.precomputeTexts(store.raw, given, texts.raw, call)));
    } finally {
      given.delete();
    }
  }

  // ---- Chunks

  /**
   * Prefills a chunk after nothing and stores it, unless it is there. It is on disk when this returns. Chunks of
   * prompts that begin with something need a chunk prefix, or answers are lost: see {@link Prompt#head}.
   *
   * @param store where
   * @param tokens of the chunk
   * @return its id
   */
  public Stored precompute(Store store, int[] tokens) {
    return precompute(store, tokens, new PrecomputeOptions());
  }

  /**
   * The same of a text, tokenized by itself.
   *
   * @param store where
   * @param text of the chunk
   * @return its id
   */
  public Stored precompute(Store store, String text) {
    return precompute(store, tokenizer().tokenize(text));
  }

  /**
   * Prefills a chunk and stores it.
   *
   * @param store where
   * @param tokens of the chunk
   * @param options how
   * @return its id
   * @throws FullException if the quota or the disk is exhausted
   * @throws ReadOnlyException if the store is
   */
  public Stored precompute(Store store, int[] tokens, PrecomputeOptions options) {
    return options.call(
        new RawPrecomputeOptions(options.raw),
        call -> Stored.of(raw.precompute(store.raw, Tokens.of(tokens), call)));
  }

  /**
   * Stores the chunks of a corpus so that they serve each other as context: each after the chunk prefix alone,
   * and in the context of the chunks that are most similar to it. A call that was stopped goes on
   * where it ended when it is made again.
   *
   * @param store where
   * @param chunks of the corpus
   * @param options how; give the head of the prompts as chunk prefix
   * @return what became of each chunk, in their order
   * @throws FullException if the quota or the disk is exhausted
   * @throws ReadOnlyException if the store is
   */
  public List<CorpusRecord> precomputeCorpus(Store store, List<CorpusChunk> chunks, CorpusOptions options) {
    RawCorpus corpus = new RawCorpus();
    try {
      for (CorpusChunk chunk : chunks) {
        corpus.add(Tokens.of(chunk.tokens()));
        if (chunk.label() != null) {
          corpus.setLabel(chunk.label());
        }
        if (chunk.tags() != null) {
          corpus.setTags(chunk.tags());
        }
      }
      return options.call(
          new RawCorpusOptions(options.raw),
          call -> CorpusRecord.of(raw.precomputeCorpus(store.raw, corpus, call)));
    } finally {
      corpus.delete();
    }
  }

  /**
   * Whether a chunk is stored: the look-up of a fuse, not counted.
   *
   * @param store where
   * @param tokens of the chunk
   * @param options chunk prefix, predecessor, tenant; with contexts, whichever they are, it is the contextual record
   * @return its id, either way
   */
  public Stored findChunk(Store store, int[] tokens, PrecomputeOptions options) {
    RawPrecomputeOptions call = new RawPrecomputeOptions(options.raw);
    try {
      return Stored.of(raw.findChunk(store.raw, Tokens.of(tokens), call));
    } finally {
      call.delete();
    }
  }

  /**
   * Stores a chunk that the host's own engine prefilled.
   *
   * @param store where
   * @param tokens of the chunk, [n]
   * @param layers [n_layers], each with the chunk's n rows
   * @param firstPosition that rotated K begins at
   * @param options chunk prefix, tenant, codec
   * @return its id
   */
  public String putChunk(
      Store store, int[] tokens, List<KvView> layers, int firstPosition, PrecomputeOptions options) {
    return options.call(
        new RawPrecomputeOptions(options.raw),
        call -> {
          RawKvLayers views = new RawKvLayers();
          try {
            for (KvView layer : layers) {
              RawKvView view = layer.raw();
              views.add(view);
              view.delete();
            }
            return raw.putChunk(store.raw, Tokens.of(tokens), views, firstPosition, call);
          } finally {
            views.delete();
            java.lang.ref.Reference.reachabilityFence(layers);
          }
        });
  }

  // ---- Fusing

  /**
   * Fuses a prompt with the defaults.
   *
   * @param store of its chunks
   * @param prompt segments in their order
   * @return to be closed
   */
  public Fusion fuse(Store store, Prompt prompt) {
    return fuse(store, prompt, new FuseOptions());
  }

  /**
   * Fuses a prompt into one KV cache and computes the logits of its last row.
   *
   * @param store of its chunks; may be null with Policy.FULL and OnMiss.COMPUTE
   * @param prompt segments in their order
   * @param options how
   * @return to be closed
   * @throws NotFoundException if a chunk is missing and must not be computed
   * @throws ContextLengthException if the prompt outgrows the context
   * @throws CancelledException by {@link Cancel}, or when this thread is interrupted
   */
  public Fusion fuse(Store store, Prompt prompt, FuseOptions options) {
    return options.call(
        new RawFuseOptions(options.raw),
        call -> new Fusion(RawFusion.fuse(raw, Store.raw(store), prompt.raw, call)));
  }

  private static RawSamples samples(List<Prompt> prompts) {
    RawSamples samples = new RawSamples();
    prompts.forEach(prompt -> samples.add(prompt.raw));
    return samples;
  }

  /**
   * Measures fusing on sample prompts against full prefill, and writes a profile.
   *
   * @param prompts samples, chunks given as tokens
   * @param options how
   * @param file written at the end, whole or not at all; null: beside the model
   * @return false if no ratio kept the limits: the profile then asks for ratio 1
   */
  public boolean calibrate(List<Prompt> prompts, CalibrateOptions options, Path file) {
    return options.call(
        new RawCalibrateOptions(options.raw),
        call -> {
          RawSamples samples = samples(prompts);
          try {
            return RawProfile.calibrate(raw, samples, call, file == null ? "" : file.toString());
          } finally {
            samples.delete();
          }
        });
  }

  /**
   * Measures a profile's choice on prompts that it was not made from.
   *
   * @param profile of this model
   * @param prompts samples, chunks given as tokens
   * @param options how
   * @return what was found
   */
  public Verdict verify(Profile profile, List<Prompt> prompts, VerifyOptions options) {
    return options.call(
        new RawVerifyOptions(options.raw),
        call -> {
          RawSamples samples = samples(prompts);
          try {
            return Verdict.of(profile.raw.verify(raw, samples, call));
          } finally {
            samples.delete();
          }
        });
  }

  /**
   * One prompt of a batch.
   *
   * @param prompt segments in their order
   * @param options how; their cancel stops this prompt alone
   */
  public record FuseRequest(Prompt prompt, FuseOptions options) {}

  /**
   * What became of one prompt of a batch: one of the two is null.
   *
   * @param fusion to be closed
   * @param failure of this prompt: a BlendException, or what its callback threw
   */
  public record FuseResult(Fusion fusion, Throwable failure) {}

  /**
   * Fuses prompts together, layer by layer in step: chunks that they share are read once. For throughput;
   * all are complete at about the same time.
   *
   * @param store of their chunks; may be null as in {@link #fuse}
   * @param requests the prompts
   * @return one a request, in their order
   */
  public List<FuseResult> fuseBatch(Store store, List<FuseRequest> requests) {
    RawBatch batch = new RawBatch();
    List<Relay> relays = new ArrayList<>();
    Running running = new Running(null);
    try {
      for (FuseRequest request : requests) {
        Callbacks callbacks = request.options.callbacks();
        Relay relay = callbacks.none() ? null : new Relay(callbacks);
        relays.add(relay);
        RawFuseOptions call = new RawFuseOptions(request.options.raw);
        CallOptions.prepare(call, running.more(request.options.cancel), relay);
        batch.add(request.prompt.raw, call);
        call.delete();
      }
      running.during(
          () -> {
            batch.fuse(raw, Store.raw(store));
            return null;
          });
      List<FuseResult> results = new ArrayList<>();
      for (int i = 0; i < requests.size(); ++i) {
        try {
          results.add(new FuseResult(new Fusion(batch.take(i)), null));
        } catch (CallbackException e) {
          Relay relay = relays.get(i);
          results.add(new FuseResult(null, relay == null ? e : relay.failure(e)));
        } catch (RuntimeException e) {
          results.add(new FuseResult(null, e));
        }
      }
      return results;
    } finally {
      running.delete();
      batch.delete();
      relays.stream().filter(java.util.Objects::nonNull).forEach(Relay::delete);
    }
  }

  /**
   * Brings back what {@link Fusion#save} kept.
   *
   * @param store where it is
   * @param id of it
   * @param options whose it is, and the rows for what follows
   * @return to be closed
   * @throws NotFoundException if there is none, or it is another tenant's
   */
  public Fusion restore(Store store, String id, RestoreOptions options) {
    return Running.call(
        options.cancel,
        cancel ->
            new Fusion(
                RawFusion.restore(
                    raw, Store.raw(store), id, options.tenant, options.reserveTokens, cancel)));
  }

  /**
   * A schedule for gradual filtering.
   *
   * @param ratio its mean
   * @param firstLayer at which rows are chosen first
   * @param count layers wanted; fewer where the model has fewer
   * @return for {@link FuseOptions#checkLayers}
   */
  public List<CheckLayer> defaultCheckLayers(double ratio, int firstLayer, int count) {
    RawCheckLayers layers = raw.defaultCheckLayers(ratio, firstLayer, count);
    try {
      List<CheckLayer> list = new ArrayList<>();
      for (long i = 0; i < layers.size(); ++i) {
        list.add(new CheckLayer(layers.layer(i), layers.ratio(i)));
      }
      return list;
    } finally {
      layers.delete();
    }
  }

  @Override
  public void close() {
    raw.close();
  }

  /** How a model is opened; its progress is bytes of weights. */
  public static final class Options extends CallOptions<Options> {
    final RawModelOptions raw = new RawModelOptions();

    /** The library's defaults. */
    public Options() {}

    /**
     * A LoRA adapter; several add up. Chunks that are stored with it are found with it alone.
     *
     * @param file a GGUF file or a PEFT directory
     * @return this
     */
    public Options lora(Path file) {
      return lora(file, 1);
    }

    /**
     * A LoRA adapter, scaled.
     *
     * @param file a GGUF file or a PEFT directory
     * @param scale of what it adds, besides its own alpha; not 0
     * @return this
     */
    public Options lora(Path file, double scale) {
      if (scale == 0) {
        throw new IllegalArgumentException("a LoRA adapter of scale 0 has no effect: leave it out");
      }
      raw.addLora(file.toString(), scale);
      return this;
    }

    // blend:setters model_options Options
  }
}
