import io.libblend.Context;
import io.libblend.Fusion;
import io.libblend.GenerateOptions;
import io.libblend.Model;
import io.libblend.Store;
import java.nio.file.Path;
import java.util.List;

/** Documents and a question in, an answer out: Smallest [MODEL.gguf [STORE_DIR]] */
public final class Smallest {
  public static void main(String[] args) {
    Path file = Path.of(args.length > 0 ? args[0] : "examples/models/blend-qa.gguf");
    Path folder = Path.of(args.length > 1 ? args[1] : "blend-store");
    List<String> documents =
        List.of("Hugo Rask works at the south inn.", "There he guards the square anchor.");
    try (Context context = Context.create();
        Model model = Model.open(context, file);
        Store store = Store.open(context, folder);
        Fusion fusion = model.fuseTexts(store, documents, "What does Hugo Rask guard?");
        var answer = fusion.stream(new GenerateOptions())) {
      answer.forEach(System.out::print);
      System.out.println();
    }
  }
}
