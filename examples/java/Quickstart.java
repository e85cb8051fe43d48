import io.libblend.Context;
import io.libblend.FuseOptions;
import io.libblend.Fusion;
import io.libblend.FusionInfo;
import io.libblend.GenerateOptions;
import io.libblend.Model;
import io.libblend.Prompt;
import io.libblend.Store;
import io.libblend.Stored;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

/**
 * The main job of libblend in Java: precompute, fuse, generate.
 *
 * <pre>java -cp libblend.jar Quickstart.java MODEL.gguf STORE_DIR [QUESTION]</pre>
 *
 * Three passages stand for what a retriever found. Their KV caches are computed once and kept in
 * STORE_DIR; the prompt made of them and the question is then fused from the store, and the answer is
 * streamed. Run it twice: the second time nothing is stored again.
 */
public final class Quickstart {
  private static final List<String> PASSAGES =
      List.of(
          "For a year Hugo Rask works at the south inn. The sun was out and the streets were full.\n",
          "There he guards the square anchor. Clouds came in from the sea.\n",
          "Nobody said much about the matter. The morning was cold and the road was quiet.\n");

  public static void main(String[] args) {
    if (args.length < 2 || args.length > 3) {
      System.err.println("usage: Quickstart MODEL.gguf STORE_DIR [QUESTION]");
      System.exit(2);
    }
    String question = args.length > 2 ? args[2] : "What does Hugo Rask look after?";

    try (Context context = Context.create();
        Model model = Model.open(context, Path.of(args[0]));
        Store store = Store.open(context, Path.of(args[1]))) {

      for (String passage : PASSAGES) {
        Stored chunk = model.precompute(store, passage);
        System.out.printf("%.16s %s%n", chunk.id(), chunk.existed() ? "was there" : "stored");
      }

      // BOS where the model wants one, the chunks in prompt order, the question.
      Prompt.Builder prompt = Prompt.builder(model.tokenizer()).bos();
      PASSAGES.forEach(prompt::chunk);
      prompt.question("\nQuestion: " + question + "\nAnswer:");

      // Of the reused rows, those whose K and V deviate most are recomputed.
      FuseOptions options = new FuseOptions().ratio(0.15).reserveTokens(64);
      try (Fusion fusion = model.fuse(store, prompt.build(), options)) {
        try (Stream<String> answer = fusion.stream(new GenerateOptions().maxTokens(64))) {
          answer.forEach(System.out::print);
        }
        FusionInfo info = fusion.info();
        System.out.printf(
            "%n%nfirst token after %.2f ms: %d rows, %d from the store, %d of them recomputed%n",
            info.ttftNs() / 1e6, info.nRows(), info.nRowsReused(), info.nRowsSelected());
      }
    }
  }
}
