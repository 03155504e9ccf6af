// The prefix index. Tokens are their tags, so that an attached sequence must hold the values of the query's tokens.
#include <algorithm>

#include "objects.h"

namespace fuzz {
namespace {

// The tags of a sequence, cut and continued; its tokens live until the call returned.
kvc_prefix_query draw_query(World &w, const Sequence *s, bool exact) {
  std::vector<int32_t> tags;
  for (size_t i = 0; s != nullptr && i < s->tokens.size(); i++) tags.push_back(s->tokens[i].tag);
  if (!exact && w.in.one_in(2)) tags.resize(static_cast<size_t>(w.in.between(0, std::ssize(tags))));
  if (!exact && w.in.one_in(2)) tags.push_back(static_cast<int32_t>(w.in.between(1, 8)));
  kvc_prefix_query query;
  kvc_prefix_query_init(&query);
  query.num_tokens = w.in.fewer(std::ssize(tags));
  query.tokens = w.in.pointer(w.array(tags));
  query.salt = static_cast<uint64_t>(w.in.below(3));
  query.salt_begin = w.in.one_in(2) ? 0 : w.in.below(9);
  if (w.in.one_in(2)) query.flags = KVC_PREFIX_ALLOW_ALL;
  w.in.size_of(query);
  w.in.numbers(query.flags, query.salt_begin);
  return query;
}

void attach(World &w, Cache &c, const kvc_prefix_query &query) {
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  w.in.size_of(hit);
  kvc_seq id = 0;
  const bool told = !w.in.one_in(4);
  if (told && CALL(kvc_prefix_match, w.handle(c), w.in.pointer(&query), w.in.pointer(&hit), w.error()) != KVC_OK)
    return;
  const int64_t found = hit.tokens;
  if (CALL(kvc_prefix_attach, w.handle(c), w.in.pointer(&query), w.stream(), told ? &hit : nullptr, w.in.pointer(&id),
           w.error()) != KVC_OK) {
    return;
  }
  int64_t length = 0;
  if (kvc_seq_lengths(c.cache, 1, &id, &length, nullptr) != KVC_OK || length > query.num_tokens ||
      (told && (length != found || length != hit.tokens))) {
    die("attach found %lld tokens", static_cast<long long>(length));
  }
  Sequence s{id, {}, {}, {}};
  for (int64_t i = 0; i < length; i++) s.tokens.push_back({static_cast<uint8_t>(query.tokens[i]), ~0u});
  c.sequences.push_back(s);
}

void publish(World &w, Cache &c, kvc_seq id, const kvc_prefix_query &query) {
  kvc_prefix_options options;
  kvc_prefix_options_init(&options);
  options.session = static_cast<uint64_t>(w.in.below(3));
  options.priority = static_cast<int32_t>(w.in.below(101));
  options.time_to_live = w.in.below(9);
  w.in.size_of(options);
  w.in.numbers(options.priority, options.time_to_live);
  kvc_prefix_published published;
  kvc_prefix_published_init(&published);
  w.in.size_of(published);
  CALL(kvc_prefix_publish, w.handle(c), id, w.in.pointer(&query), w.in.one_in(3) ? nullptr : &options,
       w.in.one_in(3) ? nullptr : &published, w.error());
}

}  // namespace

void call_prefix(World &w) {
  Cache &c = w.some_cache();
  if (c.cache == nullptr) return;
  const kvc_seq id = w.some_sequence(c);
  const Sequence *s = c.find(id);
  const int64_t choice = w.in.below(12);
  const kvc_prefix_query query = draw_query(w, s, choice < 4);
  const auto session = static_cast<uint64_t>(w.in.below(3));
  const int32_t priority = w.in.number(static_cast<int32_t>(w.in.below(101)));
  const int64_t time = w.in.number(w.in.below(9));
  int64_t pages = 0;
  uint64_t pin = 0;
  switch (choice) {
    case 0:
    case 1:
    case 2:
    case 3:
      return publish(w, c, id, query);
    case 4:
      CALL(kvc_prefix_drop, w.handle(c), w.in.pointer(&query), w.in.one_in(2) ? nullptr : &pages, w.error());
      break;
    case 5:
      CALL(kvc_prefix_drop_session, w.handle(c), session, w.in.one_in(2) ? nullptr : &pages, w.error());
      break;
    case 6:
      CALL(kvc_prefix_set_priority, w.handle(c), w.in.pointer(&query), priority, time, w.error());
      CALL(kvc_prefix_set_session_priority, w.handle(c), session, priority, time, w.error());
      break;
    case 7:
      if (CALL(kvc_prefix_pin, w.handle(c), w.in.pointer(&query), nullptr, w.in.pointer(&pin), w.error()) == KVC_OK) {
        CALL(kvc_prefix_unpin, w.handle(c), pin + (w.in.one_in(2) ? 1 : 0), w.error());
      }
      break;
    case 8:
      CALL(kvc_cache_set_time, w.handle(c), time, w.error());
      break;
    default:
      attach(w, c, query);
  }
}

}  // namespace fuzz
