import io.libblend.BlendException;
import io.libblend.Context;
import io.libblend.FuseOptions;
import io.libblend.Fusion;
import io.libblend.GenerateOptions;
import io.libblend.Model;
import io.libblend.Policy;
import io.libblend.Prompt;
import io.libblend.Store;
import io.libblend.Token;
import io.libblend.View;
import java.io.IOException;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Retrieval-augmented generation: documents in, an answer out, and what fusing saved.
 *
 * <pre>Rag [--docs FOLDER] [--question TEXT] [--model MODEL.gguf] [--store DIR]</pre>
 *
 * The table compares three ways to the first token of the same prompt: full prefill, the stored caches as
 * they are, and those with the rows of highest KV deviation recomputed. Agreement is the share of full
 * prefill's answer tokens that are also the likeliest there; KL is of the distributions at those tokens,
 * in nats.
 */
public final class Rag {
  private static final int REPEATS = 3;

  private final Model model;
  private final Store store;
  private final Prompt prompt;
  private final int maxTokens;

  private Rag(Model model, Store store, Prompt prompt, int maxTokens) {
    this.model = model;
    this.store = store;
    this.prompt = prompt;
    this.maxTokens = maxTokens;
  }

  private record Way(String name, FuseOptions options) {}

  private List<Way> ways(double ratio) {
    return List.of(
        new Way("full", new FuseOptions().policy(Policy.FULL).reserveTokens(maxTokens)),
        new Way("reuse", new FuseOptions().policy(Policy.REUSE).reserveTokens(maxTokens)),
        new Way("hkvd", new FuseOptions().policy(Policy.HKVD).ratio(ratio).reserveTokens(maxTokens)));
  }

  /** Log probabilities from the logits of the last row. */
  private static double[] logSoftmax(Fusion fusion) {
    try (View<FloatBuffer> view = fusion.viewLogits()) {
      FloatBuffer logits = view.buffer();
      double[] logs = new double[logits.remaining()];
      double max = Double.NEGATIVE_INFINITY;
      for (int i = 0; i < logs.length; ++i) {
        logs[i] = logits.get(i);
        max = Math.max(max, logs[i]);
      }
      double sum = 0;
      for (double log : logs) {
        sum += Math.exp(log - max);
      }
      double norm = max + Math.log(sum);
      for (int i = 0; i < logs.length; ++i) {
        logs[i] -= norm;
      }
      return logs;
    }
  }

  private static int likeliest(double[] logs) {
    int best = 0;
    for (int i = 1; i < logs.length; ++i) {
      best = logs[i] > logs[best] ? i : best;
    }
    return best;
  }

  /** Log probabilities before each of the tokens. */
  private List<double[]> follow(FuseOptions options, int[] tokens) {
    List<double[]> rows = new ArrayList<>();
    try (Fusion fusion = model.fuse(store, prompt, options)) {
      for (int token : tokens) {
        rows.add(logSoftmax(fusion));
        fusion.decode(token);
      }
    }
    return rows;
  }

  private void compare(double ratio) {
    System.out.printf(
        "%-8s %8s %11s %10s %8s  %s%n", "policy", "TTFT ms", "recomputed", "agreement", "KL", "answer");
    int[] reference = null;
    List<double[]> wanted = null;
    for (Way way : ways(ratio)) {
      double[] times = new double[REPEATS];
      for (int i = 0; i < REPEATS; ++i) {
        try (Fusion fusion = model.fuse(store, prompt, way.options())) {
          times[i] = fusion.info().ttftNs() / 1e6;
        }
      }
      Arrays.sort(times);
      List<Token> answer = new ArrayList<>();
      long selected;
      try (Fusion fusion = model.fuse(store, prompt, way.options())) {
        fusion.generate(new GenerateOptions().maxTokens(maxTokens), answer::add);
        selected = fusion.info().nRowsSelected();
      }
      if (reference == null) {
        reference = answer.stream().mapToInt(Token::id).toArray();
        if (reference.length == 0) {
          reference = new int[] {model.info().eosToken()};
        }
      }
      List<double[]> logs = follow(way.options(), reference);
      wanted = wanted == null ? logs : wanted;
      int agreed = 0;
      double kl = 0;
      for (int i = 0; i < reference.length; ++i) {
        double[] p = wanted.get(i);
        double[] q = logs.get(i);
        agreed += likeliest(p) == likeliest(q) ? 1 : 0;
        for (int t = 0; t < p.length; ++t) {
          kl += Math.exp(p[t]) * (p[t] - q[t]);
        }
      }
      System.out.printf(
          "%-8s %8.2f %11d %9d%% %8.4f  %s%n",
          way.name(), times[REPEATS / 2], selected, 100 * agreed / reference.length, kl / reference.length,
          answer.stream().map(Token::text).collect(Collectors.joining()).strip());
    }
  }

  private static List<Path> documents(Path folder) throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.filter(f -> f.toString().endsWith(".txt") || f.toString().endsWith(".md")).sorted().toList();
    }
  }

  public static void main(String[] args) throws IOException {
    Set<String> names =
        Set.of("model", "docs", "question", "store", "chunk-tokens", "top", "ratio", "max-tokens");
    try (Options options = new Options(args, names)) {
      run(options);
    } catch (BlendException e) {
      System.err.println(e.getMessage() + " (" + e.getClass().getSimpleName() + ")");
      System.exit(1);
    }
  }

  private static void run(Options options) throws IOException {
    String question =
        options.get("question", Files.readString(Path.of("examples/data/question.txt")).strip());
    int maxTokens = options.number("max-tokens", 32);
    double ratio = Double.parseDouble(options.get("ratio", "0.15"));
    List<Path> files = documents(Path.of(options.get("docs", "examples/data/documents")));

    try (Context context = Context.create();
        Model model = Model.open(context, options.model());
        Store store = Store.open(context, options.store())) {
      Retrieval.Bm25 index = new Retrieval.Bm25();
      List<Retrieval.Chunk> chunks = new ArrayList<>();
      for (Path file : files) {
        String name = file.getFileName().toString();
        String text = Files.readString(file);
        chunks.addAll(Retrieval.chunksOf(model.tokenizer(), name, text, options.number("chunk-tokens", 96)));
      }
      long stored = Retrieval.store(model, store, chunks);
      chunks.forEach(index::add);
      System.out.printf("%d documents, %d chunks, %d stored now%n", files.size(), index.size(), stored);

      List<Retrieval.Chunk> found = index.best(question, options.number("top", 6));
      System.out.println(
          "found in " + found.stream().map(Retrieval.Chunk::document).distinct().collect(Collectors.joining(", ")));
      Prompt prompt = Retrieval.promptOf(model, found, question);
      System.out.printf("%n%s%n", question);
      FuseOptions fuse = new FuseOptions().ratio(ratio).reserveTokens(maxTokens);
      try (Fusion fusion = model.fuse(store, prompt, fuse);
          Stream<String> answer = fusion.stream(new GenerateOptions().maxTokens(maxTokens))) {
        answer.forEach(System.out::print);
        System.out.printf(
            "%n%n%d rows, %d of them from the store%n%n", fusion.info().nRows(), fusion.info().nRowsReused());
      }
      new Rag(model, store, prompt, maxTokens).compare(ratio);
    }
  }
}
