import io.libblend.BlendException;
import io.libblend.Context;
import io.libblend.CorpusRecord;
import io.libblend.Document;
import io.libblend.FuseOptions;
import io.libblend.Fusion;
import io.libblend.FusionInfo;
import io.libblend.GenerateOptions;
import io.libblend.Model;
import io.libblend.Store;
import io.libblend.TextOptions;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/**
 * The main job of libblend in Java: precompute, fuse, generate.
 *
 * <pre>java -cp libblend.jar examples/java/Quickstart.java STORE_DIR [MODEL.gguf [QUESTION]]</pre>
 *
 * Five passages stand for a corpus. Their KV caches are computed once, each after what the prompt begins
 * with and in the context of similar passages, and kept in STORE_DIR; the prompt made of them and the question is then fused from the store, and the answer is
 * streamed. Run it twice: the second time nothing is stored again.
 */
public final class Quickstart {
  public static void main(String[] args) throws IOException {
    if (args.length < 1 || args.length > 3) {
      System.err.println("usage: Quickstart STORE_DIR [MODEL.gguf [QUESTION]], in the project's folder");
      System.exit(2);
    }
    Path examples = Path.of("examples");
    Path file = args.length > 1 ? Path.of(args[1]) : examples.resolve("models/blend-qa.gguf");
    String question =
        args.length > 2 ? args[2] : Files.readString(examples.resolve("data/question.txt")).strip();
    List<String> passages = new ArrayList<>();
    for (int i = 1; i <= 5; ++i) {
      passages.add(Files.readString(examples.resolve("data/documents/" + i + ".txt")));
    }

    try (Context context = Context.create();
        Model model = Model.open(context, file);
        Store store = Store.open(context, Path.of(args[0]))) {

      // A fuse does so by itself, one passage at a time, with those that it does not find; all of them at once
      // serve each other as context.
      for (CorpusRecord chunk : model.precomputeTexts(store, passages)) {
        System.out.printf("%.16s %s%n", chunk.id(), chunk.existed() ? "was there" : "stored");
      }

      FuseOptions options = new FuseOptions().reserveTokens(64);
      try (Fusion fusion =
              model.fuseTexts(store, Document.of(passages), question, new TextOptions(), options);
          Stream<String> answer = fusion.stream(new GenerateOptions().maxTokens(64))) {
        answer.forEach(System.out::print);
        FusionInfo info = fusion.info();
        System.out.printf(
            "%n%nfirst token after %.2f ms: %d rows, %d from the store, %d of them recomputed%n",
            info.ttftNs() / 1e6, info.nRows(), info.nRowsReused(), info.nRowsSelected());
      }
    } catch (BlendException e) {
      System.err.println(e.getMessage() + " (" + e.getClass().getSimpleName() + ")");
      System.exit(1);
    }
  }
}
