package dev.kvcache.conformance;

import dev.kvcache.ReceiveOptions;
import dev.kvcache.Transfer;
import dev.kvcache.TransferProgress;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;

/** Transfers: sequences to caches of this process, or of others over a transport. */
final class TransferOperations {
  private TransferOperations() {}

  static void register(Map<String, Consumer<Script>> operations) {
    operations.put("set_transport", s -> s.cache().setTransport(
        Path.of(System.getenv("KVCACHE_CONFORMANCE_TRANSPORT")), System.getenv("KVCACHE_CONFORMANCE_OPTIONS")));
    operations.put("receive", s -> {
      ReceiveOptions options = ReceiveOptions.create();
      if (s.has("timeout_ms")) {
        options.timeout(Duration.ofMillis(s.integer("timeout_ms")));
      }
      if (s.has("prefix")) {
        options.prefix(s.sequences("prefix")[0]);
      }
      s.transfers.put(s.integer("transfer"), s.cache().receive(s.integer("tokens", 0), options));
    });
    operations.put("describe_transfer", TransferOperations::describe);
    operations.put("send", TransferOperations::send);
    operations.put("poll_transfer", TransferOperations::poll);
    operations.put("cancel_transfer", s -> transfer(s).cancel());
  }

  private static Transfer transfer(Script s) {
    return s.transfers.get(s.integer("transfer"));
  }

  private static void describe(Script s) {
    byte[] description = transfer(s).describe();
    s.descriptions.put(s.integer("transfer"), description);
    if (!s.has("file")) {
      return;
    }
    Path path = SaveOperations.path("KVCACHE_CONFORMANCE_SAVE", s, "file");
    Path part = path.resolveSibling(path.getFileName() + ".part");
    try {
      Files.write(part, description);
      Files.move(part, path, StandardCopyOption.ATOMIC_MOVE); // the sender finds all of it
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static void send(Script s) {
    byte[] description = s.descriptions.get(s.integer("of"));
    if (s.has("file")) {
      Path path = SaveOperations.path("KVCACHE_CONFORMANCE_LOAD", s, "file");
      while (!Files.exists(path)) {
        LockSupport.parkNanos(1_000_000);
      }
      try {
        description = Files.readAllBytes(path);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
    description = Arrays.copyOf(description, description.length - s.integer("cut"));
    s.transfers.put(s.integer("transfer"), s.cache().send(s.sequence(), description));
  }

  private static void poll(Script s) {
    TransferProgress progress;
    try {
      progress = s.has("until_done") ? transfer(s).await() : transfer(s).poll();
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
    if (progress.done() && s.has("seqs")) {
      s.bind(new long[] {progress.sequence()});
    }
    s.results.put("done", progress.done() ? 1 : 0);
    s.results.put("tokens", progress.tokens());
    s.results.put("bytes", progress.bytes());
  }
}
