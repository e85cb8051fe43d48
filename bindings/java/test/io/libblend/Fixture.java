package io.libblend;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.After;
import org.junit.AfterClass;
import org.junit.BeforeClass;
import org.junit.Rule;
import org.junit.rules.TemporaryFolder;

/** What most tests open: one context and model for the class, a store for each test. */
public abstract class Fixture {
  static final Path MODEL = Path.of(System.getProperty("blend.model"));
  static final List<String> PASSAGES =
      List.of(
          "For a year Hugo Rask works at the south inn. The sun was out and the streets were full.\n",
          "There he guards the square anchor. Clouds came in from the sea.\n",
          "Nobody said much about the matter. The morning was cold and the road was quiet.\n");
  static final String QUESTION = "\nQuestion: What does Hugo Rask look after?\nAnswer:";

  static Context context;
  static Model model;
  private Store opened;

  @Rule public final TemporaryFolder folder = new TemporaryFolder();

  @BeforeClass
  public static void open() {
    context = Context.create(new Context.Options().threads(2));
    model = Model.open(context, MODEL);
  }

  @AfterClass
  public static void close() {
    context.close();
    model.close();
  }

  @After
  public void closeStore() {
    if (opened != null) {
      opened.close();
    }
  }

  Path path(String name) {
    return folder.getRoot().toPath().resolve(name);
  }

  Store store() {
    if (opened == null) {
      opened = Store.open(context, path("store"));
    }
    return opened;
  }

  static Prompt prompt() {
    Prompt.Builder builder = Prompt.builder(model.tokenizer()).bos();
    PASSAGES.forEach(builder::chunk);
    return builder.question(QUESTION).build();
  }

  Fusion fusion() {
    // At once what the default leaves for idle time.
    return model.fuse(store(), prompt(), new FuseOptions().onMiss(OnMiss.PRECOMPUTE));
  }

  static void write(Path file, byte[] bytes) {
    try {
      Files.write(file, bytes);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
