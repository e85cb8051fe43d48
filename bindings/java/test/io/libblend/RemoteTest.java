package io.libblend;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;
import static org.junit.Assume.assumeTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;

/** Stores with a remote tier, on a redis-server of the tests' own. */
public class RemoteTest extends Fixture {
  private Process server;
  private String url;

  @Before
  public void startServer() throws Exception {
    Path program = Path.of("/usr/bin/redis-server");
    assumeTrue("redis-server is not installed", Files.isExecutable(program));
    int port;
    try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))) {
      port = free.getLocalPort();
    }
    Files.createDirectories(path("server"));
    server =
        new ProcessBuilder(
                program.toString(), "--port", "" + port, "--bind", "127.0.0.1", "--dir",
                path("server").toString(), "--save", "", "--requirepass", "sesame")
            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
            .start();
    url = "redis://127.0.0.1:" + port;
    for (int i = 0; i < 200; ++i) {
      try (Socket socket = new Socket("127.0.0.1", port)) {
        return;
      } catch (IOException later) {
        Thread.sleep(50);
      }
    }
  }

  @After
  public void stopServer() throws Exception {
    if (server != null) {
      server.destroyForcibly().waitFor();
    }
  }

  private Store open(String name, String password, byte[] sealKey) {
    return Store.open(
        context,
        path(name),
        new Store.Options()
            .remote(url)
            .remoteTimeoutMs(20000)
            .remoteSecrets(null, password, sealKey));
  }

  @Test
  public void pushPullVerifyRemove() {
    String id;
    try (Store before = Store.open(context, path("first"))) {
      id = model.precompute(before, PASSAGES.get(0)).id();
      model.precompute(before, PASSAGES.get(1));
    }
    try (Store first = open("first", "sesame", null);
        Store second = open("second", "sesame", null)) {
      first.remoteCheck();
      assertEquals(1, first.remotePush(new TransferOptions().ids(List.of(id))));
      assertEquals(1, first.remotePush(new TransferOptions()));
      assertEquals(0, first.remotePush(new TransferOptions()));
      assertEquals(2, second.remotePull(new TransferOptions()));
      assertEquals(2, second.list(true).size());
      List<Store.RemoteChunk> found = second.remoteVerify(new TransferOptions());
      assertEquals(2, found.size());
      assertTrue(found.stream().anyMatch(chunk -> id.equals(chunk.id())));
      assertNull(found.get(0).problem());
      second.remoteRemove(id);
      assertEquals(1, first.remoteVerify(new TransferOptions()).size());
      assertThrows(NotFoundException.class, () -> second.remoteRemove(id));
      IllegalStateException mine = new IllegalStateException("mine");
      TransferOptions failing =
          new TransferOptions()
              .progress(
                  (done, total) -> {
                    throw mine;
                  });
      assertEquals(mine, assertThrows(IllegalStateException.class, () -> first.remotePush(failing)));
    }
  }

  @Test
  public void secrets() {
    try (Store stranger = open("stranger", "guessed", null)) {
      assertThrows(IoException.class, stranger::remoteCheck);
    }
    try (Store sealed = open("sealed", "sesame", new byte[32]);
        Store plain = open("plain", "sesame", null)) {
      model.precompute(sealed, PASSAGES.get(0));
      sealed.flush();
      assertEquals(1, sealed.remoteVerify(new TransferOptions()).size());
      assertEquals(0, plain.remotePull(new TransferOptions()));
    }
    assertThrows(InvalidArgumentException.class, () -> open("short", null, new byte[3]));
    assertThrows(InvalidArgumentException.class, () -> store().remoteCheck());
  }
}
