import io.libblend.CorpusChunk;
import io.libblend.CorpusOptions;
import io.libblend.Model;
import io.libblend.Prompt;
import io.libblend.Store;
import io.libblend.Tokenizer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** Documents to chunks, and BM25 over them: what stands in for a retriever of your own. */
final class Retrieval {
  private static final Pattern BLANK_LINES = Pattern.compile("\\n\\s*\\n");
  private static final Pattern SENTENCE_ENDS = Pattern.compile("(?<=[.!?])\\s+");
  private static final Pattern WORD = Pattern.compile("\\w+", Pattern.UNICODE_CHARACTER_CLASS);

  private Retrieval() {}

  /** A piece of a document, small enough to be stored by itself. */
  record Chunk(String document, String text, int[] tokens) {}

  /**
   * Packs paragraphs, in order, into chunks of at most maxTokens; a paragraph that is longer goes by
   * sentences, and a sentence that is longer is cut between tokens.
   */
  static List<Chunk> chunksOf(Tokenizer tokenizer, String name, String text, int maxTokens) {
    List<String> pieces = new ArrayList<>();
    for (String raw : BLANK_LINES.split(text)) {
      String paragraph = raw.strip().replaceAll("\\s+", " ");
      if (paragraph.isEmpty()) {
        continue;
      }
      if (tokenizer.tokenize(paragraph + "\n").length <= maxTokens) {
        pieces.add(paragraph + "\n");
      } else {
        for (String sentence : SENTENCE_ENDS.split(paragraph)) {
          pieces.add(sentence + "\n");
        }
      }
    }
    List<String> packed = new ArrayList<>();
    String open = "";
    for (String piece : pieces) {
      if (!open.isEmpty() && tokenizer.tokenize(open + piece).length > maxTokens) {
        packed.add(open);
        open = "";
      }
      open += piece;
    }
    if (!open.isEmpty()) {
      packed.add(open);
    }
    List<Chunk> chunks = new ArrayList<>();
    for (String chunk : packed) {
      int[] tokens = tokenizer.tokenize(chunk);
      for (int begin = 0; begin < tokens.length; begin += maxTokens) {
        int[] part = Arrays.copyOfRange(tokens, begin, Math.min(begin + maxTokens, tokens.length));
        chunks.add(new Chunk(name, part.length == tokens.length ? chunk : tokenizer.detokenize(part), part));
      }
    }
    return chunks;
  }

  /** Precomputes chunks after what prompts begin with, in the context of similar ones. How many were new. */
  static long store(Model model, Store store, List<Chunk> chunks) {
    List<CorpusChunk> corpus = chunks.stream().map(chunk -> new CorpusChunk(chunk.tokens())).toList();
    CorpusOptions options = new CorpusOptions().chunkPrefix(model.tokenizer().bos());
    return model.precomputeCorpus(store, corpus, options).stream().filter(record -> !record.existed()).count();
  }

  /** BOS, the chunks, the question. */
  static Prompt promptOf(Model model, List<Chunk> chunks, String question) {
    Prompt.Builder prompt = Prompt.builder(model.tokenizer()).bos();
    chunks.forEach(chunk -> prompt.chunk(chunk.tokens()));
    return prompt.question("Question: " + question + "\nAnswer:").build();
  }

  /** Okapi BM25. Not thread-safe while chunks are added. */
  static final class Bm25 {
    private static final double K1 = 1.2;
    private static final double B = 0.75;

    private final List<Chunk> chunks = new ArrayList<>();
    private final List<Map<String, Long>> counts = new ArrayList<>();
    private final List<Long> lengths = new ArrayList<>();
    private final Map<String, Integer> withWord = new HashMap<>();

    private static List<String> words(String text) {
      return WORD.matcher(text.toLowerCase(Locale.ROOT)).results().map(m -> m.group()).toList();
    }

    void add(Chunk chunk) {
      List<String> words = words(chunk.text());
      Map<String, Long> count = words.stream().collect(Collectors.groupingBy(w -> w, Collectors.counting()));
      chunks.add(chunk);
      counts.add(count);
      lengths.add((long) words.size());
      count.keySet().forEach(word -> withWord.merge(word, 1, Integer::sum));
    }

    int size() {
      return chunks.size();
    }

    private double score(int i, List<String> query) {
      double mean = lengths.stream().mapToLong(n -> n).average().orElse(1);
      double total = 0;
      for (String word : query) {
        long f = counts.get(i).getOrDefault(word, 0L);
        if (f > 0) {
          int df = withWord.get(word);
          double idf = Math.log(1 + (chunks.size() - df + 0.5) / (df + 0.5));
          total += idf * f * (K1 + 1) / (f + K1 * (1 - B + B * lengths.get(i) / mean));
        }
      }
      return total;
    }

    /** The chunks of the highest score, in the order they were added. */
    List<Chunk> best(String question, int top) {
      List<String> query = words(question);
      double[] scores = IntStream.range(0, chunks.size()).mapToDouble(i -> score(i, query)).toArray();
      return IntStream.range(0, chunks.size())
          .boxed()
          .sorted(Comparator.comparingDouble((Integer i) -> -scores[i]).thenComparing(i -> i))
          .limit(top)
          .sorted()
          .map(chunks::get)
          .toList();
    }
  }
}
