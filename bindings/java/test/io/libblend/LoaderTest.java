package io.libblend;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;
import static org.junit.Assume.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** The loader, each time in a JVM of its own. */
public class LoaderTest {
  @Rule public final TemporaryFolder folder = new TemporaryFolder();

  /** What such a JVM runs. */
  public static final class Child {
    private Child() {}

    public static void main(String[] args) {
      System.out.println("version " + Blend.version());
    }
  }

  private static String child(String... properties) throws Exception {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of(properties));
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), Child.class.getName()));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String output = new String(process.getInputStream().readAllBytes());
    process.waitFor();
    return output;
  }

  @Test
  public void ofTheJarAndLeavesNothingBehind() throws Exception {
    String output = child("-Dio.libblend.tmpdir=" + folder.getRoot());
    assertTrue(output, output.startsWith("version "));
    try (Stream<Path> left = Files.list(folder.getRoot().toPath())) {
      assertEquals(List.of(), left.toList());
    }
  }

  @Test
  public void ofAnExplicitPath() throws Exception {
    Path module = folder.getRoot().toPath().resolve("my name.so");
    Files.copy(Path.of(System.getProperty("blend.module")), module);
    Path library = Path.of(System.getProperty("blend.library"));
    Files.copy(library, folder.getRoot().toPath().resolve(library.getFileName()));
    String output = child("-Dio.libblend.library=" + module, "-Dio.libblend.tmpdir=/nonexistent");
    assertTrue(output, output.startsWith("version "));
  }

  @Test
  public void saysWhatIsWrong() throws Exception {
    String output = child("-Dio.libblend.library=/no/such/file.so");
    assertTrue(output, output.contains("io.libblend.library names /no/such/file.so, which is not a file"));
    output = child("-Dio.libblend.tmpdir=/nonexistent");
    assertTrue(output, output.contains("set -Dio.libblend.tmpdir=DIR to one that is writable"));
    Path text = folder.newFile("text.so").toPath();
    Files.writeString(text, "not a library at all, whatever its name says");
    output = child("-Dio.libblend.library=" + text);
    assertTrue(output, output.contains("text.so cannot be loaded"));
    output = child("-Dos.arch=abacus");
    assertTrue(output, output.contains("no libblend for linux-abacus"));
  }

  @Test
  public void knowsTheReasons() {
    Path file = Path.of("/tmp/x.so");
    String noexec = "/tmp/x.so: failed to map segment from shared object: Operation not permitted";
    assertTrue(NativeLibrary.explain(noexec, file, false).contains("mounted noexec"));
    String old = "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by /tmp/x.so)";
    assertTrue(NativeLibrary.explain(old, file, false).contains("newer C or C++ library"));
    String musl = "Error loading shared library ld-linux-x86-64.so.2: No such file or directory";
    assertTrue(NativeLibrary.explain(musl, file, false).contains("another C library"));
    assertTrue(NativeLibrary.explain("symbol not found", file, true).contains("another C library"));
    String lacks = "liblmdb.so.0: cannot open shared object file: No such file or directory";
    assertTrue(NativeLibrary.explain(lacks, file, false).contains("library that it needs"));
  }

  @Test
  public void noexecForReal() throws Exception {
    Path mount = noexecDirectory();
    assumeTrue("nothing here is mounted noexec and writable", mount != null);
    String output = child("-Dio.libblend.tmpdir=" + mount);
    assertTrue(output, output.contains("mounted noexec"));
  }

  private static Path noexecDirectory() throws IOException {
    for (String line : Files.readAllLines(Path.of("/proc/mounts"))) {
      String[] fields = line.split(" ");
      Path mount = Path.of(fields[1]);
      if (List.of(fields[3].split(",")).contains("noexec") && fields[2].equals("tmpfs") && Files.isWritable(mount)
          && Files.isDirectory(mount)) {
        return mount;
      }
    }
    return null;
  }
}
