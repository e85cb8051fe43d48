import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.libblend.BlendException;
import io.libblend.Context;
import io.libblend.FuseOptions;
import io.libblend.Fusion;
import io.libblend.FusionInfo;
import io.libblend.GenerateOptions;
import io.libblend.InvalidArgumentException;
import io.libblend.Model;
import io.libblend.Prompt;
import io.libblend.Store;
import io.libblend.StoreStat;
import io.libblend.Token;
import io.libblend.TokenStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A service: documents in, answers streamed out, several requests at a time on one context.
 *
 * <pre>Service [--model MODEL.gguf] [--store DIR] [--port N]</pre>
 *
 * What it answers is in examples/README.md. Stop it with Ctrl-C or SIGTERM: it finishes what it has begun.
 * A client that goes away ends its generation: writing to it fails, and the stream of tokens is closed.
 */
public final class Service {
  private static final int MAX_BODY = 4 << 20;
  private static final int CHUNK_TOKENS = 96;

  /** A request that cannot be served: status and what is wrong. */
  private static final class Bad extends RuntimeException {
    private static final long serialVersionUID = 1L;
    private final int status;

    Bad(int status, String message) {
      super(message);
      this.status = status;
    }
  }

  // What the requests share: the library's objects are thread-safe, the rest is under this lock.
  private final Model model;
  private final Store store;
  private final Object lock = new Object();
  private final Retrieval.Bm25 index = new Retrieval.Bm25();
  private final Set<String> documents = new HashSet<>();
  private final Map<String, Long> requests = new TreeMap<>();
  private long tokens;
  private long answers;
  private double ttftSeconds;
  private int running;
  private boolean stopping;

  private Service(Model model, Store store) {
    this.model = model;
    this.store = store;
  }

  // ---- What it does

  private String addDocument(String name, String text) {
    List<Retrieval.Chunk> chunks = Retrieval.chunksOf(model.tokenizer(), name, text, CHUNK_TOKENS);
    long stored = Retrieval.store(model, store, chunks);
    synchronized (lock) {
      if (!documents.add(name)) {
        throw new Bad(409, "there is a document '" + name + "' already");
      }
      chunks.forEach(index::add);
    }
    return "{\"name\": " + Json.quote(name) + ", \"chunks\": " + chunks.size() + ", \"stored\": " + stored + "}";
  }

  private Prompt find(String question, int top) {
    List<Retrieval.Chunk> found;
    synchronized (lock) {
      if (index.size() == 0) {
        throw new Bad(404, "there are no documents: POST /documents first");
      }
      found = index.best(question, top);
    }
    return Retrieval.promptOf(model, found, question);
  }

  private void ask(HttpExchange exchange, Map<String, Object> body) throws IOException {
    String question = text(body, "question");
    int maxTokens = number(body, "max_tokens", 32);
    Prompt prompt = find(question, number(body, "top", 6));
    try (Fusion fusion = model.fuse(store, prompt, new FuseOptions().reserveTokens(maxTokens));
        TokenStream stream = fusion.generateTokens(new GenerateOptions().maxTokens(maxTokens))) {
      FusionInfo info = fusion.info();
      boolean more = stream.hasNext(); // what is wrong before the first token has a status of its own
      exchange.getResponseHeaders().set("Content-Type", "text/event-stream");
      exchange.getResponseHeaders().set("Cache-Control", "no-store");
      exchange.sendResponseHeaders(200, 0);
      OutputStream out = exchange.getResponseBody();
      StringBuilder answer = new StringBuilder();
      long count = 0;
      try {
        for (; more; more = stream.hasNext()) {
          Token token = stream.next();
          ++count;
          answer.append(token.text());
          event(out, null, "{\"text\": " + Json.quote(token.text()) + "}");
        }
      } catch (BlendException e) {
        event(out, "error", "{\"error\": " + Json.quote(e.getMessage()) + "}");
        return;
      }
      // Counted before the client hears of the end, so that it finds itself in /metrics.
      synchronized (lock) {
        tokens += count;
        ++answers;
        ttftSeconds += info.ttftNs() / 1e9;
        count("/ask", 200);
      }
      event(
          out,
          "done",
          "{\"answer\": " + Json.quote(answer.toString().strip()) + ", \"ttft_ms\": " + info.ttftNs() / 1e6
              + ", \"rows\": " + info.nRows() + ", \"reused\": " + info.nRowsReused()
              + ", \"recomputed\": " + info.nRowsSelected() + "}");
    }
  }

  private static void event(OutputStream out, String name, String json) throws IOException {
    String head = name == null ? "" : "event: " + name + "\n";
    out.write((head + "data: " + json + "\n\n").getBytes(StandardCharsets.UTF_8));
    out.flush();
  }

  private String metrics() {
    StoreStat stat = store.stat();
    StringBuilder text = new StringBuilder("# TYPE blend_requests_total counter\n");
    synchronized (lock) {
      requests.forEach((labels, n) -> text.append("blend_requests_total{" + labels + "} " + n + "\n"));
      text.append("# TYPE blend_tokens_total counter\nblend_tokens_total " + tokens + "\n");
      text.append("# TYPE blend_ttft_seconds summary\nblend_ttft_seconds_sum " + ttftSeconds + "\n");
      text.append("blend_ttft_seconds_count " + answers + "\n");
    }
    Map.of("chunks", stat.nChunks(), "bytes", stat.bytes(), "hits", stat.hits(), "misses", stat.misses())
        .forEach((name, n) ->
            text.append("# TYPE blend_store_" + name + " gauge\nblend_store_" + name + " " + n + "\n"));
    return text.toString();
  }

  // ---- HTTP

  private void count(String path, int code) {
    synchronized (lock) {
      requests.merge("path=\"" + path + "\",code=\"" + code + "\"", 1L, Long::sum);
    }
  }

  private static String text(Map<String, Object> body, String name) {
    if (body.get(name) instanceof String value && !value.isEmpty()) {
      return value;
    }
    throw new Bad(400, "'" + name + "' must be given, as a text");
  }

  private static int number(Map<String, Object> body, String name, int otherwise) {
    Object value = body.getOrDefault(name, (double) otherwise);
    if (value instanceof Double number && number >= 1 && number == number.intValue()) {
      return number.intValue();
    }
    throw new Bad(400, "'" + name + "' must be a whole number, at least 1");
  }

  private static Map<String, Object> body(HttpExchange exchange) throws IOException {
    byte[] bytes = exchange.getRequestBody().readNBytes(MAX_BODY + 1);
    if (bytes.length > MAX_BODY) {
      throw new Bad(413, "at most " + MAX_BODY + " bytes are taken");
    }
    try {
      return Json.object(new String(bytes, StandardCharsets.UTF_8));
    } catch (IllegalArgumentException e) {
      throw new Bad(400, "the body is not a JSON object: " + e.getMessage());
    }
  }

  private void send(HttpExchange exchange, String path, int status, String type, String text) throws IOException {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    count(path, status);
    exchange.getResponseHeaders().set("Content-Type", type);
    exchange.sendResponseHeaders(status, bytes.length);
    exchange.getResponseBody().write(bytes);
  }

  private void handle(HttpExchange exchange) {
    synchronized (lock) {
      ++running;
    }
    try {
      serve(exchange);
    } finally {
      synchronized (lock) {
        --running;
        lock.notifyAll();
      }
    }
  }

  /** Begins nothing more, and waits for what was begun. (HttpServer.stop(delay) waits in vain before JDK 21.) */
  private void finish() throws InterruptedException {
    synchronized (lock) {
      stopping = true;
      while (running > 0) {
        lock.wait();
      }
    }
  }

  private void serve(HttpExchange exchange) {
    String path = exchange.getRequestURI().getPath();
    String request = exchange.getRequestMethod() + " " + path;
    String counted = Set.of("POST /documents", "POST /ask", "GET /metrics").contains(request) ? path : "other";
    try (exchange) {
      try {
        synchronized (lock) {
          if (stopping) {
            throw new Bad(503, "the service is stopping");
          }
        }
        switch (request) {
          case "POST /documents" -> {
            Map<String, Object> body = body(exchange);
            send(exchange, path, 200, "application/json", addDocument(text(body, "name"), text(body, "text")));
          }
          case "POST /ask" -> ask(exchange, body(exchange));
          case "GET /metrics" -> send(exchange, path, 200, "text/plain; version=0.0.4", metrics());
          default -> throw new Bad(404, "there are POST /documents, POST /ask and GET /metrics");
        }
      } catch (Bad e) {
        fail(exchange, counted, e.status, e);
      } catch (InvalidArgumentException e) {
        fail(exchange, counted, 400, e);
      } catch (BlendException e) {
        fail(exchange, counted, 500, e);
      }
    } catch (IOException e) {
      count(counted, 499); // the client went away
    }
  }

  private void fail(HttpExchange exchange, String path, int status, Exception e) throws IOException {
    send(exchange, path, status, "application/json", "{\"error\": " + Json.quote(e.getMessage()) + "}");
  }

  public static void main(String[] args) throws Exception {
    try (Options options = new Options(args, Set.of("model", "store", "port"));
        Context context =
            Context.create(new Context.Options().log(record -> System.err.println(record.message())));
        Model model = Model.open(context, options.model());
        Store store = Store.open(context, options.store())) {
      Service service = new Service(model, store);
      HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", options.number("port", 8080)), 128);
      ExecutorService threads = Executors.newCachedThreadPool();
      server.setExecutor(threads);
      server.createContext("/", service::handle);
      server.start();

      CountDownLatch stop = new CountDownLatch(1);
      Thread main = Thread.currentThread();
      Runtime.getRuntime()
          .addShutdownHook(
              new Thread(
                  () -> {
                    stop.countDown();
                    try {
                      main.join(); // the JVM ends when this hook does
                    } catch (InterruptedException e) {
                      Thread.currentThread().interrupt();
                    }
                    Runtime.getRuntime().halt(0); // an obeyed SIGTERM is not a failure
                  }));
      System.out.println("listening on http://127.0.0.1:" + server.getAddress().getPort());
      stop.await();
      service.finish();
      server.stop(0);
      threads.shutdown();
    }
  }
}
