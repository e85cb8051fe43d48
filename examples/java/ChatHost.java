import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.libblend.BlendException;
import io.libblend.Context;
import io.libblend.Document;
import io.libblend.FuseOptions;
import io.libblend.Fusion;
import io.libblend.GenerateOptions;
import io.libblend.Grammar;
import io.libblend.GrammarLanguage;
import io.libblend.LogRecord;
import io.libblend.Model;
import io.libblend.Store;
import io.libblend.TextOptions;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;

/** Messages, documents and tools in, an answer out (examples/README.md): ChatHost MODEL STORE_DIR PORT [TEMPLATE] */
public final class ChatHost {
  private static final int MAX_BODY = 1 << 20;

  private final Model model;
  private final Store store;
  private final String template;

  private ChatHost(Model model, Store store, String template) {
    this.model = model;
    this.store = store;
    this.template = template;
  }

  private static Model.Message message(Map<String, Object> message) {
    Map<String, Object> more = new LinkedHashMap<>(message);
    more.keySet().removeAll(List.of("role", "content"));
    String content = message.get("content") == null && !more.isEmpty() ? "" : Json.text(message, "content");
    return new Model.Message(Json.text(message, "role"), content, more.isEmpty() ? "" : Json.write(more));
  }

  private static boolean mustCall(Map<String, Object> asked) {
    return !Json.objects(asked, "tools").isEmpty();
  }

  /** What the answer must be: JSON of a schema, or a call of one of the tools; null: any text. */
  private Grammar grammar(Map<String, Object> asked) {
    var how = new Grammar.Options();
    if (mustCall(asked)) {
      how.language(GrammarLanguage.CALL).text(Json.write(asked.get("tools"))).templateSource(template);
    } else if (asked.get("schema") != null) {
      how.language(GrammarLanguage.JSON_SCHEMA).text(Json.write(asked.get("schema")));
    } else {
      return null;
    }
    return Grammar.open(model, how);
  }

  private Fusion fuse(Map<String, Object> asked) {
    List<Model.Message> messages = Json.objects(asked, "messages").stream().map(ChatHost::message).toList();
    List<Document> documents = Document.of(Json.texts(asked, "documents"));
    TextOptions texts = new TextOptions();
    if (mustCall(asked)) {
      texts.tools(Json.write(asked.get("tools"))).mustCall(true);
    }
    if (!template.isEmpty()) {
      texts.templateSource(template);
    }
    return model.fuseMessages(store, messages, documents, texts, new FuseOptions());
  }

  private void answer(HttpExchange exchange) {
    try (exchange) {
      Fusion fused;
      Grammar grammar;
      GenerateOptions generate = new GenerateOptions();
      try {
        byte[] body = exchange.getRequestBody().readNBytes(MAX_BODY);
        Map<String, Object> asked = Json.object(new String(body, StandardCharsets.UTF_8));
        generate.maxTokens(asked.get("max_tokens") instanceof Double number ? number.intValue() : 64);
        grammar = grammar(asked);
        if (grammar != null) {
          generate.grammar(grammar);
        }
        fused = fuse(asked);
      } catch (IllegalArgumentException | BlendException e) {
        byte[] error = ("{\"error\": " + Json.quote(e.getMessage()) + "}").getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(400, error.length);
        exchange.getResponseBody().write(error);
        return;
      }
      String done;
      try (fused; grammar; var text = fused.stream(generate)) {
        done = account(fused);
        exchange.getResponseHeaders().set("Content-Type", "text/event-stream");
        exchange.sendResponseHeaders(200, 0);
        for (var pieces = text.iterator(); pieces.hasNext(); ) {
          write(exchange, "data: {\"text\": " + Json.quote(pieces.next()) + "}\n\n");
        }
      }
      write(exchange, "event: done\ndata: " + done + "\n\n");
    } catch (IOException e) {
      // The client has gone: the generation ends with it.
    }
  }

  private static String account(Fusion fused) {
    var info = fused.info();
    return "{\"rows\": " + info.nRows() + ", \"reused\": " + info.nRowsReused()
        + ", \"ttft_ms\": " + info.ttftNs() / 1e6 + "}";
  }

  private static void write(HttpExchange exchange, String event) throws IOException {
    OutputStream out = exchange.getResponseBody();
    out.write(event.getBytes(StandardCharsets.UTF_8));
    out.flush();
  }

  public static void main(String[] args) throws Exception {
    String template = args.length > 3 ? Files.readString(Path.of(args[3])) : "";
    var logging = new Context.Options().log(LogRecord.to(System.getLogger("libblend")));
    try (Context context = Context.create(logging);
        Model model = Model.open(context, Path.of(args[0]));
        Store store = Store.open(context, Path.of(args[1]))) {
      HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[2])), 128);
      server.setExecutor(Executors.newCachedThreadPool());
      server.createContext("/", new ChatHost(model, store, template)::answer);
      server.start();
      System.out.println("listening on http://127.0.0.1:" + server.getAddress().getPort());
      Thread.currentThread().join(); // until the process is ended
    }
  }
}
