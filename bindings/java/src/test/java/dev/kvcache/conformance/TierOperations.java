package dev.kvcache.conformance;

import dev.kvcache.Cache;
import dev.kvcache.DiskTier;
import dev.kvcache.HostTier;
import dev.kvcache.LoadJob;
import dev.kvcache.LoadOptions;
import dev.kvcache.TierTraffic;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.stream.Collectors;

/** Tiers: memory, and folders in those that the driver names. */
final class TierOperations {
  private TierOperations() {}

  static void register(Map<String, Consumer<Script>> operations) {
    operations.put("add_tier", s -> {
      if (s.has("host")) {
        HostTier tier = HostTier.of(s.integer("capacity_bytes", 0))
            .store(DiskTier.Store.valueOf(s.word("store", "published").toUpperCase(Locale.ROOT)))
            .minTokens(s.integer("min_tokens", 0)).medium(s.word("medium", null));
        s.cache().addHostTier(s.has("pinned") ? tier.pinned() : tier);
        return;
      }
      String folder = s.has("of_first") ? "KVCACHE_CONFORMANCE_LOAD" : "KVCACHE_CONFORMANCE_SAVE";
      s.cache().addDiskTier(DiskTier.in(SaveOperations.path(folder, s, "directory")).capacityBytes(s.integer("capacity_bytes", 0))
          .sync(DiskTier.Sync.valueOf(s.word("sync", "data").toUpperCase(Locale.ROOT)))
          .store(DiskTier.Store.valueOf(s.word("store", "published").toUpperCase(Locale.ROOT)))
          .minTokens(s.integer("min_tokens", 0)).medium(s.word("medium", null))
          .reads(DiskTier.Reads.valueOf(s.word("reads", "any").toUpperCase(Locale.ROOT))));
    });
    operations.put("load_prefix", TierOperations::load);
    operations.put("attach_pending", s -> {
      s.job = s.cache().loadPrefix(PrefixOperations.query(s), LoadOptions.create().tokenNs(Long.MAX_VALUE)).job();
      LoadJob.Attached attached = s.job.attach(true, Duration.ZERO);
      s.bind(new long[] {attached.sequence()});
      s.results.put("tokens", attached.tokens());
    });
    operations.put("wait_job", s -> {
      try {
        s.results.put("loaded", s.job.await());
      } catch (InterruptedException e) {
        throw new IllegalStateException(e);
      }
      s.results.put("pending", s.cache().pending(s.sequence()).isPresent() ? 1 : 0);
    });
    operations.put("suspend", s -> await(s, s.cache().suspend(s.sequence())));
    operations.put("resume", s -> await(s, s.cache().resume(s.sequence())));
    operations.put("tier_traffic", s -> {
      TierTraffic traffic = s.cache().tierTraffic();
      while (traffic.pagesWaiting() > 0) {
        LockSupport.parkNanos(1_000_000);
        traffic = s.cache().tierTraffic();
      }
      s.results.put("num_tiers", traffic.numTiers());
      s.results.put("stored", traffic.pagesStored());
      s.results.put("dropped", traffic.pagesDropped());
      s.results.put("not_stored", traffic.pagesNotStored());
      s.results.put("loading", traffic.pagesLoading());
      s.results.put("loaded", traffic.pagesLoaded());
      s.results.put("not_loaded", traffic.pagesNotLoaded());
      s.results.put("suspended", traffic.sequencesSuspended());
    });
  }

  private static void await(Script s, LoadJob job) {
    try {
      s.results.put("tokens", job.await());
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  private static void load(Script s) {
    LoadOptions options = LoadOptions.create().priority(s.integer("priority")).session(s.integer("session", 0))
        .timeToLive(s.integer("time_to_live", 0)).tokenNs(s.integer("token_ns", Long.MAX_VALUE));
    Cache.StartedLoad load = s.cache().loadPrefix(PrefixOperations.query(s), options);
    try (LoadJob job = load.job()) {
      if (s.has("cancel")) {
        return; // close cancels
      }
      PrefixOperations.results(s, load.hit());
      s.results.put("load_tokens", load.hit().loadTokens());
      List<Long> tiers = new ArrayList<>(load.hit().tierTokens());
      while (!tiers.isEmpty() && tiers.get(tiers.size() - 1) == 0) {
        tiers.remove(tiers.size() - 1);
      }
      s.results.put("tier_tokens", tiers.stream().map(String::valueOf).collect(Collectors.joining(",")));
      s.results.put("loaded", job == null ? 0 : job.await());
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }
}
