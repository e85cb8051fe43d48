package io.libblend;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.stream.Stream;

/**
 * Finds and loads libblend and its JNI module, once a process; in this order:
 *
 * <ol>
 *   <li>the file that the property {@code io.libblend.library} names, libblend.so beside it or on the
 *       system's path;
 *   <li>those in this jar for this platform, unpacked for the moment of loading into a directory of their
 *       own in {@code io.libblend.tmpdir}, otherwise {@code java.io.tmpdir};
 *   <li>{@code blend_java} on {@code java.library.path}.
 * </ol>
 */
final class NativeLibrary {
  static final String PATH_PROPERTY = "io.libblend.library";
  static final String TMPDIR_PROPERTY = "io.libblend.tmpdir";
  private static final String MODULE = "libblend_java.so";

  private static boolean loaded;

  private NativeLibrary() {}

  static synchronized void load() {
    if (loaded) {
      return;
    }
    String explicit = System.getProperty(PATH_PROPERTY);
    if (explicit != null) {
      loadFile(Path.of(explicit).toAbsolutePath(), PATH_PROPERTY + " names ");
    } else if (NativeLibrary.class.getResource("natives/" + platform() + "/" + MODULE) != null) {
      loadUnpacked(platform());
    } else {
      try {
        System.loadLibrary("blend_java");
      } catch (UnsatisfiedLinkError e) {
        throw failure(
            "this jar has no libblend for "
                + platform()
                + ", and java.library.path has none either: build it there and set -D"
                + PATH_PROPERTY
                + "=/path/to/"
                + MODULE,
            e);
      }
    }
    loaded = true;
  }

  private static void loadFile(Path file, String origin) {
    if (!Files.isRegularFile(file)) {
      throw new UnsatisfiedLinkError(origin + file + ", which is not a file");
    }
    try {
      System.load(file.toString());
    } catch (UnsatisfiedLinkError e) {
      throw failure(explain(String.valueOf(e.getMessage()), file, isMusl()), e);
    }
  }

  private static void loadUnpacked(String platform) {
    String base = System.getProperty(TMPDIR_PROPERTY, System.getProperty("java.io.tmpdir"));
    Path directory;
    List<Path> files = new ArrayList<>();
    try {
      directory = Files.createTempDirectory(Path.of(base), "libblend-");
    } catch (IOException e) {
      throw failure(
          "no directory can be made in " + base + ": set -D" + TMPDIR_PROPERTY + "=DIR to one that is writable", e);
    }
    try {
      for (String name : resource("natives/" + platform + "/list")) {
        Path file = directory.resolve(name);
        files.add(file);
        try (InputStream in = NativeLibrary.class.getResourceAsStream("natives/" + platform + "/" + name)) {
          Files.copy(in, file, StandardCopyOption.REPLACE_EXISTING);
        }
      }
      loadFile(directory.resolve(MODULE), "the jar has ");
    } catch (IOException e) {
      throw failure(
          "libblend cannot be unpacked into " + directory + ": set -D" + TMPDIR_PROPERTY + "=DIR to another place", e);
    } finally {
      // A loaded file needs its name no more, so nothing is left behind even by a killed process.
      files.add(directory);
      for (Path file : files) {
        try {
          Files.deleteIfExists(file);
        } catch (IOException e) {
          file.toFile().deleteOnExit();
        }
      }
    }
  }

  private static List<String> resource(String name) throws IOException {
    try (InputStream in = NativeLibrary.class.getResourceAsStream(name)) {
      if (in == null) {
        throw new IOException("the jar lacks " + name);
      }
      return Text.of(in.readAllBytes()).lines().filter(line -> !line.isBlank()).toList();
    }
  }

  /** Such as linux-x86_64, or linux-musl-x86_64: where natives lie in the jar. */
  static String platform() {
    String os = System.getProperty("os.name").toLowerCase(Locale.ROOT);
    String arch = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
    if (arch.equals("amd64") || arch.equals("x64")) {
      arch = "x86_64";
    } else if (arch.equals("arm64")) {
      arch = "aarch64";
    }
    return (os.startsWith("linux") ? isMusl() ? "linux-musl" : "linux" : os.replace(' ', '-')) + "-" + arch;
  }

  /** Whether this very process runs on musl. */
  private static boolean isMusl() {
    try (Stream<String> maps = Files.lines(Path.of("/proc/self/maps"))) {
      return maps.anyMatch(line -> line.contains("ld-musl-"));
    } catch (IOException | java.io.UncheckedIOException e) {
      return false;
    }
  }

  /** What to say of a file that the system would not load. */
  static String explain(String reason, Path file, boolean musl) {
    String what = file + " cannot be loaded (" + reason + "): ";
    if (reason.contains("failed to map segment") || reason.contains("Operation not permitted")) {
      return what
          + "the directory seems to be mounted noexec. Set -D"
          + TMPDIR_PROPERTY
          + "=DIR to a directory that is not, or unpack the natives yourself and set -D"
          + PATH_PROPERTY
          + "=FILE";
    }
    if (reason.contains("GLIBC_") || reason.contains("GLIBCXX_")) {
      return what
          + "it was built for a newer C or C++ library than this system has. Build libblend on this"
          + " system, or on one as old, and set -D"
          + PATH_PROPERTY
          + "=FILE";
    }
    if (musl || reason.contains("ld-linux") || reason.contains("ld-musl") || reason.contains("libc.musl")) {
      return what
          + "it was built for another C library (glibc or musl) than this Java runs on. Take the natives"
          + " of the other, or build libblend here and set -D"
          + PATH_PROPERTY
          + "=FILE";
    }
    if (reason.contains("wrong ELF class") || reason.contains("invalid ELF header")
        || reason.contains("Can't load")) {
      return what + "it is not for " + System.getProperty("os.arch") + ", which this Java runs on";
    }
    if (reason.contains("cannot open shared object file")) {
      return what
          + "a library that it needs is not on this system (docs/java.md lists them), or libblend.so is"
          + " neither beside it nor on the system's path";
    }
    return what + "set -D" + PATH_PROPERTY + "=FILE to one that fits this system";
  }

  private static UnsatisfiedLinkError failure(String message, Throwable cause) {
    UnsatisfiedLinkError error = new UnsatisfiedLinkError(message);
    error.initCause(cause);
    return error;
  }
}
