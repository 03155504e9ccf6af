package dev.kvcache;

import java.nio.file.Path;
import java.util.Map;
import java.util.StringJoiner;

/** The calls of a cache that begin transfers; {@link Cache} says what each does. */
final class Transfers {
  private Transfers() {}

  static void useUcx(Cache cache, String transports, String devices) {
    String function = "Cache.useUcx";
    Checks.given(function, "transports", transports);
    String options = Checks.given(function, "devices", devices).isEmpty() ? transports : transports + "/" + devices;
    open(cache, function, library("KVCACHE_UCX_LIBRARY", "libkvcache_ucx.so.0"), options);
  }

  static void useNixl(Cache cache, Map<String, String> options) {
    String function = "Cache.useNixl";
    StringJoiner text = new StringJoiner(";");
    Checks.given(function, "options", options).forEach((name, value) -> {
      Checks.given(function, "a name", name);
      Checks.given(function, "a value", value);
      if (name.isEmpty() || name.indexOf('=') >= 0 || name.indexOf(';') >= 0 || value.indexOf(';') >= 0) {
        throw KvcacheException.misuse(
            Status.INVALID_ARGUMENT, function + ": \"" + name + "\" = \"" + value + "\" is no option");
      }
      text.add(name + "=" + value);
    });
    open(cache, function, library("KVCACHE_NIXL_LIBRARY", "libkvcache_nixl.so.0"), text.toString());
  }

  /** The file of a transport: the one that the environment names, or that the system's loader finds. */
  private static String library(String variable, String name) {
    String named = System.getenv(variable);
    return named == null || named.isEmpty() ? name : named;
  }

  static void set(Cache cache, Path library, String options) {
    String function = "Cache.setTransport";
    open(cache, function, Checks.given(function, "library", library).toString(), Checks.given(function, "options", options));
  }

  private static void open(Cache cache, String function, String library, String options) {
    if (library.indexOf('\0') >= 0 || options.indexOf('\0') >= 0) {
      throw KvcacheException.misuse(Status.INVALID_ARGUMENT, function + ": the library or the options have a NUL");
    }
    Arena arena = cache.enter(function);
    try {
      arena.check(function, cache.handle.calls.useTransport(
          cache.handle.address, arena.text(library), arena.text(options), arena.error.address));
    } finally {
      cache.leave(arena);
    }
  }

  static Transfer receive(Cache cache, long tokens, ReceiveOptions options) {
    String function = "Cache.receive";
    Arena arena = cache.enter(function);
    try {
      Mem args = Checks.given(function, "options", options).write(arena, tokens);
      arena.check(cache.handle.calls.transferReceive(
          cache.handle.address, args.address, arena.numbers.address, arena.error.address));
      return new Transfer(cache, arena.numbers.getLong(0));
    } finally {
      cache.leave(arena);
    }
  }

  static Transfer send(Cache cache, long sequence, byte[] description) {
    String function = "Cache.send";
    Arena arena = cache.enter(function);
    try {
      long bytes = arena.bytes(Checks.given(function, "description", description));
      arena.check(cache.handle.calls.transferSend(
          cache.handle.address, sequence, bytes, description.length, arena.numbers.address, arena.error.address));
      return new Transfer(cache, arena.numbers.getLong(0));
    } finally {
      cache.leave(arena);
    }
  }
}
