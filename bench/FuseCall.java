import io.libblend.Context;
import io.libblend.Model;
import io.libblend.Prompt;
import io.libblend.Store;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Path;
import java.util.Arrays;

/**
 * The same as fuse_call.c, through the Java binding.
 *
 * <pre>java -cp libblend.jar FuseCall.java MODEL.gguf STORE_DIR CHUNKS TOKENS CALLS</pre>
 *
 * fuse_call.py compares them: --binding Java "java -cp ...". A JVM interprets at first what it compiles
 * later, so it is given some seconds to warm up.
 */
public final class FuseCall {
  private static final int WARM_UP = 2000;
  private static final long WARM_UP_NS = 3_000_000_000L;

  public static void main(String[] args) {
    int chunks = Integer.parseInt(args[2]);
    int tokens = Integer.parseInt(args[3]);
    int calls = Integer.parseInt(args[4]);
    int[] ids = new int[chunks * tokens + 16];
    for (int i = 0; i < ids.length; ++i) {
      ids[i] = 5 + (int) (i * 7919L % 800);
    }
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    try (Context context = Context.create(new Context.Options().threads(1));
        Model model = Model.open(context, Path.of(args[0]));
        Store store = Store.open(context, Path.of(args[1]))) {
      Prompt.Builder builder = Prompt.builder();
      for (int i = 0; i < chunks; ++i) {
        int[] chunk = Arrays.copyOfRange(ids, i * tokens, (i + 1) * tokens);
        model.precompute(store, chunk);
        builder.chunk(chunk);
      }
      Prompt prompt = builder.question(Arrays.copyOfRange(ids, chunks * tokens, ids.length)).build();
      StringBuilder lines = new StringBuilder();
      long end = System.nanoTime() + WARM_UP_NS;
      for (int i = 0; i < WARM_UP && System.nanoTime() < end; ++i) {
        model.fuse(store, prompt).close();
      }
      for (int i = 0; i < calls; ++i) {
        long cpu = threads.getCurrentThreadCpuTime();
        long begin = System.nanoTime();
        model.fuse(store, prompt).close();
        long wall = System.nanoTime() - begin;
        cpu = threads.getCurrentThreadCpuTime() - cpu;
        lines.append(wall).append(' ').append(cpu).append('\n');
      }
      System.out.print(lines);
    }
  }
}
