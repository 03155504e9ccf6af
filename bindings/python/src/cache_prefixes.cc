// The calls of kvcache.Cache for the prefix index and for tiers. kvcache/_prefixes.py and kvcache/_tiers.py wrap the
// tuples in classes.
#include <dlfcn.h>

#include "cache.h"
#include "error.h"
#include "keys.h"
#include "kvcache_tier.h"

namespace kvcpy {

namespace {

// A query, and the arrays to which it points.
struct Query {
  std::vector<int32_t> tokens;
  const nb::bytes adapter;
  const Media media;
  kvc_prefix_query query;

  Query(const char* function, nb::handle given, uint64_t salt, int64_t salt_begin, nb::bytes lora, nb::handle spans,
        bool allow_all = true)
      : adapter(std::move(lora)), media(function, spans) {
    const Integers values = integers_from_python(given);
    if (values.is_scalar) throw nb::type_error("tokens must be a list or an array of token ids");
    tokens.reserve(values.values.size());
    for (const int64_t token : values.values) {
      if (token < INT32_MIN || token > INT32_MAX) {
        raise(KVC_ERROR_OUT_OF_RANGE, static_cast<int64_t>(tokens.size()),
              "%s: token %" PRId64 " has more than 32 bits", function, token);
      }
      tokens.push_back(static_cast<int32_t>(token));
    }
    kvc_prefix_query_init(&query);
    query.tokens = tokens.data();
    query.num_tokens = values.size();
    query.salt = salt;
    query.salt_begin = salt_begin;
    query.adapter = static_cast<const uint8_t*>(adapter.data());
    query.adapter_bytes = static_cast<int64_t>(adapter.size());
    media.write(&query);
    query.flags = allow_all ? KVC_PREFIX_ALLOW_ALL : 0;
  }
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;
};

nb::tuple hit_tuple(const kvc_prefix_hit& hit) {
  const nb::object limited = hit.limited_by < 0 ? nb::object(nb::none()) : nb::object(nb::int_(hit.limited_by));
  nb::list tiers;
  for (int32_t tier = 0; tier < hit.num_tiers; ++tier) tiers.append(hit.tier_tokens[tier]);
  return nb::make_tuple(hit.tokens, hit.copied_tokens, hit.known_tokens, limited, hit.load_tokens, hit.load_ns,
                        hit.token_ns, nb::tuple(tiers));
}

nb::tuple match(const Cache& self, nb::handle tokens, uint64_t salt, int64_t salt_begin, nb::bytes adapter,
                nb::handle media, bool allow_all) {
  auto handle = self.open();
  const Query query("match_prefix", tokens, salt, salt_begin, adapter, media, allow_all);
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  call_without_gil([&](kvc_error* error) { return kvc_prefix_match(handle->cache, &query.query, &hit, error); });
  return hit_tuple(hit);
}

nb::tuple attach(const Cache& self, nb::handle tokens, uint64_t salt, int64_t salt_begin, nb::bytes adapter,
                 nb::handle media, bool allow_all, nb::handle stream) {
  auto handle = self.open();
  const Work work = self.work(stream);
  const Query query("attach_prefix", tokens, salt, salt_begin, adapter, media, allow_all);
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  kvc_seq sequence = 0;
  call_without_gil([&](kvc_error* error) {
    return kvc_prefix_attach(handle->cache, &query.query, work.stream(), &hit, &sequence, error);
  });
  return nb::make_tuple(sequence, hit_tuple(hit));
}

nb::tuple publish(const Cache& self, nb::handle sequence, nb::handle tokens, uint64_t salt, int64_t salt_begin,
                  nb::bytes adapter, nb::handle media, uint64_t session, int64_t priority, int64_t time_to_live,
                  bool keep_private) {
  auto handle = self.open();
  const Integers id = integers_from_python(sequence);
  if (!id.is_scalar) throw nb::type_error("Cache.publish_prefix: one sequence id is needed");
  const Query query("publish_prefix", tokens, salt, salt_begin, adapter, media);
  kvc_prefix_options options;
  kvc_prefix_options_init(&options);
  options.session = session;
  options.priority = saturate(priority);
  options.time_to_live = time_to_live;
  options.flags = keep_private ? KVC_PREFIX_KEEP_PRIVATE : 0;
  kvc_prefix_published published;
  kvc_prefix_published_init(&published);
  call_without_gil([&](kvc_error* error) {
    return kvc_prefix_publish(handle->cache, id.sequences()[0], &query.query, &options, &published, error);
  });
  return nb::make_tuple(published.known_tokens, published.pages_added, published.pages_freed);
}

int64_t drop(const Cache& self, nb::handle tokens, uint64_t salt, int64_t salt_begin, nb::bytes adapter,
             nb::handle media) {
  auto handle = self.open();
  const Query query("drop_prefix", tokens, salt, salt_begin, adapter, media);
  int64_t pages = 0;
  call_without_gil([&](kvc_error* error) { return kvc_prefix_drop(handle->cache, &query.query, &pages, error); });
  return pages;
}

int64_t drop_session(const Cache& self, uint64_t session) {
  auto handle = self.open();
  int64_t pages = 0;
  call_without_gil([&](kvc_error* error) { return kvc_prefix_drop_session(handle->cache, session, &pages, error); });
  return pages;
}

void set_priority(const Cache& self, nb::handle tokens, int64_t priority, int64_t time_to_live, uint64_t salt,
                  int64_t salt_begin, nb::bytes adapter, nb::handle media) {
  auto handle = self.open();
  const Query query("set_prefix_priority", tokens, salt, salt_begin, adapter, media);
  call_without_gil([&](kvc_error* error) {
    return kvc_prefix_set_priority(handle->cache, &query.query, saturate(priority), time_to_live, error);
  });
}

void set_session_priority(const Cache& self, uint64_t session, int64_t priority, int64_t time_to_live) {
  auto handle = self.open();
  call_without_gil([&](kvc_error* error) {
    return kvc_prefix_set_session_priority(handle->cache, session, saturate(priority), time_to_live, error);
  });
}

nb::tuple pin(const Cache& self, nb::handle tokens, uint64_t salt, int64_t salt_begin, nb::bytes adapter,
              nb::handle media) {
  auto handle = self.open();
  const Query query("pin_prefix", tokens, salt, salt_begin, adapter, media);
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  uint64_t pin = 0;
  call_without_gil([&](kvc_error* error) { return kvc_prefix_pin(handle->cache, &query.query, &hit, &pin, error); });
  return nb::make_tuple(pin, hit_tuple(hit));
}

void unpin(const Cache& self, uint64_t pin) {
  auto handle = self.open();
  call_quick([&](kvc_error* error) { return kvc_prefix_unpin(handle->cache, pin, error); });
}

void set_time(const Cache& self, int64_t now) {
  auto handle = self.open();
  call_quick([&](kvc_error* error) { return kvc_cache_set_time(handle->cache, now, error); });
}

void add_disk_tier(const Cache& self, const char* directory, int64_t capacity_bytes, int64_t sync, int64_t store,
                   int64_t min_tokens, const char* medium, uint32_t flags) {
  auto handle = self.open();
  kvc_tier_config config;
  kvc_tier_config_init(&config);
  config.directory = directory;
  config.flags = flags;
  config.capacity_bytes = capacity_bytes;
  config.sync = saturate(sync);
  config.store = saturate(store);
  config.min_tokens = min_tokens;
  if (medium[0] != 0) config.medium = medium;
  call_without_gil([&](kvc_error* error) { return kvc_cache_add_tier(handle->cache, &config, error); });
}

void add_host_tier(const Cache& self, int64_t capacity_bytes, int64_t store, int64_t min_tokens, const char* medium,
                   bool pinned) {
  auto handle = self.open();
  kvc_tier_config config;
  kvc_tier_config_init(&config);
  config.flags = pinned ? KVC_TIER_HOST | KVC_TIER_PINNED : KVC_TIER_HOST;
  config.capacity_bytes = capacity_bytes;
  config.store = saturate(store);
  config.min_tokens = min_tokens;
  if (medium[0] != 0) config.medium = medium;
  call_without_gil([&](kvc_error* error) {
    const kvc_status status = kvc_cache_add_tier(handle->cache, &config, error);
    if (status != KVC_OK) rename_function("Tiers.add_host_tier", error);
    return status;
  });
}

// Opens the tier of a plug-in. The plug-in stays loaded, because its threads may outlive the cache.
kvc_status open_plugin(const char* library, const char* options, kvc_tier* tier, kvc_error* error) {
  const auto fail = [&](kvc_status status, const char* what) {
    std::snprintf(error->message, sizeof error->message, "kvc_tier_open: %s", what);
    return error->code = status;
  };
  void* plugin = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) return fail(KVC_ERROR_IO, dlerror());
  void* symbol = dlsym(plugin, "kvc_tier_open");
  if (symbol == nullptr) return fail(KVC_ERROR_UNSUPPORTED, dlerror());
  kvc_tier_init(tier);
  return reinterpret_cast<kvc_tier_open_fn>(symbol)(KVC_TIER_VERSION, options, tier, error);
}

void add_plugin_tier(const Cache& self, const char* caller, const char* library, const char* options, int64_t store,
                     int64_t min_tokens, const char* medium) {
  auto handle = self.open();
  call_without_gil([&](kvc_error* error) {
    kvc_tier tier;
    kvc_status status = open_plugin(library, options, &tier, error);
    if (status == KVC_OK) {
      kvc_tier_config config;
      kvc_tier_config_init(&config);
      config.tier = &tier;
      config.store = saturate(store);
      config.min_tokens = min_tokens;
      if (medium[0] != 0) config.medium = medium;
      status = kvc_cache_add_tier(handle->cache, &config, error);
      if (status != KVC_OK) tier.close(tier.self);
    }
    if (status != KVC_OK) rename_function(caller, error);
    return status;
  });
}

// Returns a job (0 = none), and the hit in the prefix index.
nb::tuple load(const Cache& self, nb::handle tokens, uint64_t salt, int64_t salt_begin, nb::bytes adapter,
               nb::handle media, bool allow_all, uint64_t session, int64_t priority, int64_t time_to_live,
               int64_t token_ns) {
  auto handle = self.open();
  const Query query("load_prefix", tokens, salt, salt_begin, adapter, media, allow_all);
  kvc_prefix_load_options options;
  kvc_prefix_load_options_init(&options);
  options.session = session;
  options.priority = saturate(priority);
  options.time_to_live = time_to_live;
  options.token_ns = token_ns;
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  kvc_job job = 0;
  call_without_gil(
      [&](kvc_error* error) { return kvc_prefix_load(handle->cache, &query.query, &options, &hit, &job, error); });
  return nb::make_tuple(job, hit_tuple(hit));
}

uint64_t suspend(const Cache& self, uint64_t sequence) {
  auto handle = self.open();
  kvc_job job = 0;
  call_without_gil([&](kvc_error* error) { return kvc_seq_suspend(handle->cache, sequence, &job, error); });
  return job;
}

uint64_t resume(const Cache& self, uint64_t sequence) {
  auto handle = self.open();
  kvc_job job = 0;
  call_without_gil([&](kvc_error* error) { return kvc_seq_resume(handle->cache, sequence, &job, error); });
  return job;
}

// Returns the number of tokens that were loaded, or None while the job runs.
nb::object poll_job(const Cache& self, uint64_t job) {
  auto handle = self.open();
  kvc_job_info info;
  kvc_job_info_init(&info);
  call_without_gil([&](kvc_error* error) { return kvc_job_poll(handle->cache, job, &info, error); });
  return info.done != 0 ? nb::object(nb::int_(info.tokens)) : nb::object(nb::none());
}

void cancel_job(const Cache& self, uint64_t job) {
  auto handle = self.open();
  call_without_gil([&](kvc_error* error) { return kvc_job_cancel(handle->cache, job, error); });
}

nb::tuple attach_pending(const Cache& self, uint64_t job, bool wait, int64_t timeout_ns) {
  auto handle = self.open();
  kvc_pending_options options;
  kvc_pending_options_init(&options);
  options.flags = wait ? KVC_PENDING_WAIT : 0;
  options.timeout_ns = timeout_ns;
  kvc_seq sequence = 0;
  int64_t tokens = 0;
  call_without_gil([&](kvc_error* error) {
    return kvc_prefix_attach_pending(handle->cache, job, &options, &sequence, &tokens, error);
  });
  return nb::make_tuple(sequence, tokens);
}

// Returns what a sequence waits for, or None.
nb::object pending(const Cache& self, uint64_t sequence) {
  auto handle = self.open();
  kvc_pending_info info;
  kvc_pending_info_init(&info);
  call_without_gil([&](kvc_error* error) { return kvc_seq_pending(handle->cache, sequence, &info, error); });
  if (info.job == 0) return nb::none();
  return nb::make_tuple(info.ready_layers, info.tokens, info.pages, info.pages_loaded, info.failed != 0);
}

int32_t job_descriptor(const Cache& self) {
  auto handle = self.open();
  int32_t descriptor = -1;
  call_quick([&](kvc_error* error) { return kvc_cache_job_descriptor(handle->cache, &descriptor, error); });
  return descriptor;
}

nb::tuple tier_traffic(const Cache& self) {
  auto handle = self.open();
  kvc_tier_traffic t;
  kvc_tier_traffic_init(&t);
  call_without_gil([&](kvc_error* error) { return kvc_cache_tier_traffic(handle->cache, &t, error); });
  return nb::make_tuple(t.num_tiers, t.pages_waiting, t.pages_stored, t.pages_dropped, t.pages_not_stored,
                        t.pages_loading, t.pages_loaded, t.pages_not_loaded, t.sequences_suspended);
}

void bind_jobs(nb::class_<Cache>& cls) {
  cls.def("_poll_job", &poll_job, nb::arg("job"))
      .def("_cancel_job", &cancel_job, nb::arg("job"))
      .def("_attach_pending", &attach_pending, nb::arg("job"), nb::arg("wait"), nb::arg("timeout_ns"))
      .def("_pending", &pending, nb::arg("sequence"))
      .def("_job_descriptor", &job_descriptor);
}

}  // namespace

void Cache::bind_prefixes(nb::class_<Cache>& cls) {
  bind_jobs(cls);
  cls.def("_match_prefix", &match, nb::arg("tokens"), nb::arg("salt"), nb::arg("salt_begin"), nb::arg("adapter"),
          nb::arg("media"), nb::arg("allow_all"))
      .def("_attach_prefix", &attach, nb::arg("tokens"), nb::arg("salt"), nb::arg("salt_begin"), nb::arg("adapter"),
           nb::arg("media"), nb::arg("allow_all"), nb::arg("stream").none())
      .def("_publish_prefix", &publish, nb::arg("sequence"), nb::arg("tokens"), nb::arg("salt"), nb::arg("salt_begin"),
           nb::arg("adapter"), nb::arg("media"), nb::arg("session"), nb::arg("priority"), nb::arg("time_to_live"),
           nb::arg("keep_private"))
      .def("_add_disk_tier", &add_disk_tier, nb::arg("directory"), nb::arg("capacity_bytes"), nb::arg("sync"),
           nb::arg("store"), nb::arg("min_tokens"), nb::arg("medium"), nb::arg("flags"))
      .def("_add_host_tier", &add_host_tier, nb::arg("capacity_bytes"), nb::arg("store"), nb::arg("min_tokens"),
           nb::arg("medium"), nb::arg("pinned"))
      .def("_suspend", &suspend, nb::arg("sequence"))
      .def("_resume", &resume, nb::arg("sequence"))
      .def("_add_plugin_tier", &add_plugin_tier, nb::arg("caller"), nb::arg("library"), nb::arg("options"),
           nb::arg("store"), nb::arg("min_tokens"), nb::arg("medium"))
      .def("_load_prefix", &load, nb::arg("tokens"), nb::arg("salt"), nb::arg("salt_begin"), nb::arg("adapter"),
           nb::arg("media"), nb::arg("allow_all"), nb::arg("session"), nb::arg("priority"), nb::arg("time_to_live"),
           nb::arg("token_ns"))
      .def("_tier_traffic", &tier_traffic)
      .def("_pin_prefix", &pin, nb::arg("tokens"), nb::arg("salt"), nb::arg("salt_begin"), nb::arg("adapter"),
           nb::arg("media"))
      .def("drop_prefix", &drop, nb::arg("tokens"), nb::kw_only(), nb::arg("salt") = 0, nb::arg("salt_begin") = 0,
           nb::arg("adapter") = nb::bytes("", 0), nb::arg("media") = nb::make_tuple(),
           R"(Forgets every published prefix that begins with these tokens: their last page and all that continues it.

Args:
    tokens: token ids. Empty: all that was published with this salt and adapter from the first page on.
    salt, salt_begin, adapter, media: as in publish_prefix().

Returns:
    How many pages the index gave back. Sequences keep their pages.

Raises: OutOfRange, Unsupported (a cache without prefix_index).)")
      .def("drop_session", &drop_session, nb::arg("session"),
           R"(Forgets what one session published, and no publish with another session or with none shares.

Args:
    session: not 0.

Returns:
    How many pages the index gave back. Sequences keep their pages.

Raises: InvalidArgument, Unsupported (a cache without prefix_index).)")
      .def("set_prefix_priority", &set_priority, nb::arg("tokens"), nb::arg("priority"), nb::arg("time_to_live") = 0,
           nb::kw_only(), nb::arg("salt") = 0, nb::arg("salt_begin") = 0, nb::arg("adapter") = nb::bytes("", 0),
           nb::arg("media") = nb::make_tuple(),
           R"(Sets the priority and the time to live of published tokens, from the first one on.

Args:
    tokens: token ids. Longer prefixes keep theirs after these tokens.
    priority: 0 to 100; lower ones are evicted first.
    time_to_live: 0 = no limit, else as in publish_prefix().
    salt, salt_begin, adapter, media: as in publish_prefix().

Raises: OutOfRange, Unsupported (a cache without prefix_index).)")
      .def("set_session_priority", &set_session_priority, nb::arg("session"), nb::arg("priority"),
           nb::arg("time_to_live") = 0,
           R"(Sets the priority and the time to live of all that drop_session() would drop.

Raises: InvalidArgument (session 0), OutOfRange, Unsupported (a cache without prefix_index).)")
      .def("unpin_prefix", &unpin, nb::arg("pin"), "Ends a pin of pin_prefix(). Raises StaleId.")
      .def("set_time", &set_time, nb::arg("now"),
           R"(Tells the cache the time, in any unit: of time_to_live. An earlier time than the last one changes nothing.

Raises: OutOfRange (negative).)");
}

}  // namespace kvcpy
