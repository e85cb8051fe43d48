import java.io.IOException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/** What the examples' command lines have in common: --name value, and a store for one run. */
final class Options implements AutoCloseable {
  private final Map<String, String> given = new HashMap<>();
  private Path temporary;

  Options(String[] args, Set<String> names) {
    for (int i = 0; i < args.length; i += 2) {
      if (!args[i].startsWith("--") || !names.contains(args[i].substring(2)) || i + 1 == args.length) {
        System.err.println("options: --" + String.join(" VALUE, --", names.stream().sorted().toList()) + " VALUE");
        System.exit(2);
      }
      given.put(args[i].substring(2), args[i + 1]);
    }
  }

  String get(String name, String otherwise) {
    return given.getOrDefault(name, otherwise);
  }

  int number(String name, int otherwise) {
    return given.containsKey(name) ? Integer.parseInt(given.get(name)) : otherwise;
  }

  Path model() {
    return Path.of(get("model", "examples/models/blend-qa.gguf"));
  }

  /** The store that was asked for, or a folder that close() removes. */
  Path store() throws IOException {
    if (given.containsKey("store")) {
      return Path.of(given.get("store"));
    }
    temporary = Files.createTempDirectory("blend-example-");
    return temporary;
  }

  @Override
  public void close() {
    if (temporary != null) {
      remove(temporary);
    }
  }

  private static void remove(Path folder) {
    try {
      Files.walkFileTree(
          folder,
          new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
              Files.delete(file);
              return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult postVisitDirectory(Path directory, IOException e) throws IOException {
              Files.delete(directory);
              return FileVisitResult.CONTINUE;
            }
          });
    } catch (IOException e) {
      System.err.println("left behind: " + folder);
    }
  }
}
