package dev.kvcache.conformance;

import dev.kvcache.Cache;
import dev.kvcache.PrefixHit;
import dev.kvcache.PrefixOptions;
import dev.kvcache.PrefixPublished;
import dev.kvcache.PrefixQuery;
import dev.kvcache.Stats;
import java.util.Map;
import java.util.function.Consumer;

/** Operations on the prefix index. */
final class PrefixOperations {
  private PrefixOperations() {}

  static void register(Map<String, Consumer<Script>> operations) {
    operations.put("match_prefix", s -> results(s, s.cache().matchPrefix(query(s))));
    operations.put("attach_prefix", s -> {
      Cache.AttachedPrefix attached = s.cache().attachPrefix(query(s));
      s.bind(new long[] {attached.sequence()});
      results(s, attached.hit());
    });
    operations.put("publish_prefix", s -> {
      PrefixOptions options = PrefixOptions.create().priority(s.integer("priority")).session(s.integer("session", 0))
          .timeToLive(s.integer("time_to_live", 0));
      if (s.has("keep_private")) {
        options.keepPrivate();
      }
      PrefixPublished done = s.cache().publishPrefix(s.sequence(), query(s), options);
      s.results.put("known", done.knownTokens());
      s.results.put("added", done.pagesAdded());
      s.results.put("freed", done.pagesFreed());
    });
    operations.put("drop_prefix", s -> s.results.put("pages", s.cache().dropPrefix(query(s))));
    operations.put("drop_session", s -> s.results.put("pages", s.cache().dropSession(s.integer("session", 0))));
    operations.put("set_prefix_priority", s -> {
      int priority = s.integer("priority");
      long timeToLive = s.integer("time_to_live", 0);
      if (s.has("session")) {
        s.cache().setSessionPriority(s.integer("session", 0), priority, timeToLive);
      } else {
        s.cache().setPrefixPriority(query(s), priority, timeToLive);
      }
    });
    operations.put("pin_prefix", s -> {
      Cache.PinnedPrefix pinned = s.cache().pinPrefix(query(s));
      s.results.put("tokens", pinned.hit().tokens());
      s.results.put("pin", pinned.pin());
    });
    operations.put("unpin_prefix", s -> s.cache().unpinPrefix(s.integer("pin", 0)));
    operations.put("prefix_stats", s -> {
      Stats stats = s.cache().stats((int) s.integer("group", Cache.WHOLE_CACHE));
      s.results.put("pages_published", stats.pagesPublished());
      s.results.put("pages_idle", stats.pagesIdle());
      s.results.put("pages_evicted", stats.pagesEvicted());
      s.results.put("prefix_attaches", stats.prefixAttaches());
      s.results.put("prefix_tokens", stats.prefixTokens());
    });
    operations.put("set_time", s -> s.cache().setTime(s.integer("now", 0)));
  }

  static PrefixQuery query(Script s) {
    PrefixQuery query = PrefixQuery.of(s.has("prompt") ? s.ints("prompt") : new int[0]).salt(s.integer("salt", 0))
        .saltBegin(s.integer("salt_begin", 0)).adapter(Runner.bytes(s, "adapter"));
    Runner.media(s, query::media);
    return s.has("allow_all") ? query.allowAll() : query;
  }

  static void results(Script s, PrefixHit hit) {
    s.results.put("tokens", hit.tokens());
    s.results.put("copied", hit.copiedTokens());
    s.results.put("known", hit.knownTokens());
    s.results.put("limited_by", hit.limitedBy());
  }
}
