#include "events/event_message.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

#include "events/msgpack.h"

namespace kvc {
namespace {

constexpr size_t kMostEvents = 1024;  // largest number of events in one Segment
constexpr size_t kRankBytes = 5;      // largest number of bytes of the encoded rank
constexpr size_t kHashBytes = sizeof(kvc_event::key);

std::string hex_of(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text.append({"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]});
  return text;
}

// Returns whether bytes are UTF-8 text, because other bytes would make a message unreadable.
bool is_utf8(std::span<const uint8_t> bytes) {
  constexpr uint32_t kLeast[4] = {0, 0x80, 0x800, 0x10000};  // by the number of continuation bytes
  for (size_t i = 0; i < bytes.size();) {
    const uint32_t lead = bytes[i++];
    const int more = lead < 0x80 ? 0 : lead >> 5 == 6 ? 1 : lead >> 4 == 14 ? 2 : lead >> 3 == 30 ? 3 : -1;
    if (more < 0) return false;
    uint32_t code = more == 0 ? lead : lead & (0x3F >> more);
    for (int k = 0; k < more; ++k, ++i) {
      if (i == bytes.size() || bytes[i] >> 6 != 2) return false;
      code = code << 6 | (bytes[i] & 0x3F);
    }
    if (code < kLeast[more] || code > 0x10FFFF || code >> 11 == 0x1B) return false;
  }
  return true;
}

// The name of an adapter as text: itself, or its hexadecimal digits if it is no UTF-8.
std::string text_of(std::span<const uint8_t> adapter) {
  return is_utf8(adapter) ? std::string(adapter.begin(), adapter.end()) : hex_of(adapter);
}

// A run of events of one kind. Stored pages of one group and medium become one event of the message if each page
// continues the page before it. Removed pages of one group and medium always become one event. Events of other groups
// and media may lie between them.
class Segment {
 public:
  // The events with the indices [begin, end) of the list.
  Segment(const MessageFormat& format, const EventList& list, size_t begin, size_t end, MsgpackWriter* out)
      : format_(format),
        events_(std::span(list.events).subspan(begin, end - begin)),
        contexts_(std::span(list.contexts).subspan(begin, end - begin)),
        tokens_(std::span(list.tokens).subspan(begin * static_cast<size_t>(format.page_size))),
        out_(*out) {}

  // Writes the events. Returns how many events of the message they became.
  size_t put();

 private:
  bool continues(size_t before, size_t next) const;
  void put_stored();
  void put_removed();
  void put_hashes();
  void put_hash(const uint8_t* key);
  std::span<const MediaSpan> media_of(size_t i) const;
  void put_extra_keys();
  void put_key(std::string_view name);
  bool put_optional(std::string_view name, bool present);

  const MessageFormat& format_;
  const std::span<const kvc_event> events_;
  const std::span<const ContextRef> contexts_;
  const std::span<const int32_t> tokens_;
  MsgpackWriter& out_;
  std::vector<size_t> merged_;  // indices of events that become one event of the message
};

bool Segment::continues(size_t before, size_t next) const {
  const kvc_event &a = events_[before], &b = events_[next];
  if (a.kind == KVC_EVENT_REMOVED) return true;
  return (b.flags & KVC_EVENT_HAS_PARENT) != 0 && std::memcmp(a.key, b.parent, kHashBytes) == 0 &&
         ((a.flags ^ b.flags) & KVC_EVENT_SALTED) == 0 && a.session == b.session;
}

size_t Segment::put() {
  if (events_[0].kind == KVC_EVENT_CLEARED) {
    format_.arrays ? out_.put_short_list(1) : out_.put_short_map(1);
    put_key("type");
    out_.put_text("AllBlocksCleared");
    return 1;
  }
  size_t count = 0;
  const auto flush = [&] {
    if (merged_.empty()) return;
    events_[0].kind == KVC_EVENT_STORED ? put_stored() : put_removed();
    merged_.clear();
    ++count;
  };
  for (size_t place = 0; place < format_.media.size() * format_.groups.size(); ++place) {
    const auto tier = static_cast<int32_t>(place / format_.groups.size());
    const auto group = static_cast<int32_t>(place % format_.groups.size());
    for (size_t i = 0; i < events_.size(); ++i) {
      if (events_[i].group != group || events_[i].tier != tier) continue;
      if (!merged_.empty() && !continues(merged_.back(), i)) flush();
      merged_.push_back(i);
    }
    flush();
  }
  return count;
}

void Segment::put_key(std::string_view name) {
  if (!format_.arrays) out_.put_text(name);
}

// Returns whether the caller must write the value. If the field is absent, an array gets nil, and a map does not get
// the field.
bool Segment::put_optional(std::string_view name, bool present) {
  if (present) put_key(name);
  if (!present && format_.arrays) out_.put_nil();
  return present;
}

void Segment::put_hash(const uint8_t* key) {
  if (!format_.short_hashes) return out_.put_binary({key, kHashBytes});
  uint64_t low = 0;  // the last 8 bytes of the key, as a big-endian number
  for (size_t i = kHashBytes - sizeof(low); i < kHashBytes; ++i) low = low << 8 | key[i];
  out_.put_unsigned(low);
}

void Segment::put_hashes() {
  put_key("block_hashes");
  out_.put_list(merged_.size());
  for (const size_t i : merged_) put_hash(events_[i].key);
}

// The media with a token in the page of an event.
std::span<const MediaSpan> Segment::media_of(size_t i) const {
  const int64_t begin = events_[i].position;
  return PrefixContext::media_in(contexts_[i].get(), begin, begin + format_.page_size);
}

// For each page: the adapter, the hash and the place of each of its media, and whether it has a salt.
void Segment::put_extra_keys() {
  out_.put_list(merged_.size());
  for (const size_t i : merged_) {
    const std::span<const uint8_t> adapter = PrefixContext::adapter_of(contexts_[i].get());
    const std::span<const MediaSpan> media = media_of(i);
    const bool salted = (events_[i].flags & KVC_EVENT_SALTED) != 0;
    const size_t count = !adapter.empty() + media.size() + salted;
    if (count == 0) {
      out_.put_nil();
      continue;
    }
    out_.put_list(count);
    if (!adapter.empty()) out_.put_text(text_of(adapter));
    for (const MediaSpan& span : media) {
      out_.put_short_list(2);
      out_.put_text(hex_of(span.hash));
      out_.put_integer(static_cast<int32_t>(span.begin - events_[i].position));
    }
    if (salted) out_.put_text("salted");
  }
}

void Segment::put_stored() {
  const kvc_event& first = events_[merged_[0]];
  const MessageFormat::Group& group = format_.groups[static_cast<size_t>(first.group)];
  const MessageFormat::Medium& medium = format_.media[static_cast<size_t>(first.tier)];
  const bool salted = (first.flags & KVC_EVENT_SALTED) != 0, in_session = first.session != 0;
  const bool windowed = group.window_tokens > 0;
  const std::span<const uint8_t> adapter = PrefixContext::adapter_of(contexts_[merged_[0]].get());
  const bool has_keys = salted || !adapter.empty() ||
                        std::any_of(merged_.begin(), merged_.end(), [&](size_t i) { return !media_of(i).empty(); });
  if (format_.arrays) {
    out_.put_short_list(in_session ? 15 : 13);
  } else {
    out_.put_short_map(11u + has_keys + windowed + in_session);
  }
  put_key("type");
  out_.put_text("BlockStored");
  put_hashes();
  put_key("parent_block_hash");
  (first.flags & KVC_EVENT_HAS_PARENT) != 0 ? put_hash(first.parent) : out_.put_nil();
  put_key("token_ids");
  const auto size = static_cast<size_t>(format_.page_size);
  out_.put_list(merged_.size() * size);
  for (const size_t i : merged_) {
    for (const int32_t token : tokens_.subspan(i * size, size)) out_.put_integer(token);
  }
  put_key("block_size");
  out_.put_unsigned(size);
  put_key("lora_id");
  out_.put_nil();
  put_key("medium");
  out_.put_text(medium.name);
  put_key("lora_name");
  adapter.empty() ? out_.put_nil() : out_.put_text(text_of(adapter));
  if (put_optional("extra_keys", has_keys)) put_extra_keys();
  put_key("group_idx");
  out_.put_integer(first.group);
  put_key("kv_cache_spec_kind");
  out_.put_text(group.kind);
  if (put_optional("kv_cache_spec_sliding_window", windowed)) {
    out_.put_unsigned(static_cast<uint64_t>(group.window_tokens));
  }
  put_key("locality");
  out_.put_text(medium.remote ? "REMOTE" : "LOCAL");
  if (!in_session) return;
  put_optional("ownership", false);
  put_key("session_id");
  char digits[20] = {};
  out_.put_text({digits, static_cast<size_t>(std::to_chars(digits, digits + 20, first.session).ptr - digits)});
}

void Segment::put_removed() {
  const kvc_event& first = events_[merged_[0]];
  const MessageFormat::Medium& medium = format_.media[static_cast<size_t>(first.tier)];
  format_.arrays ? out_.put_short_list(5) : out_.put_short_map(5);
  put_key("type");
  out_.put_text("BlockRemoved");
  put_hashes();
  put_key("medium");
  out_.put_text(medium.name);
  put_key("group_idx");
  out_.put_integer(first.group);
  put_key("locality");
  out_.put_text(medium.remote ? "REMOTE" : "LOCAL");
}

// Returns the end of the segment that begins at `begin`: up to kMostEvents events of one kind, or one
// KVC_EVENT_CLEARED.
size_t segment_end(std::span<const kvc_event> events, size_t begin) {
  size_t end = begin + 1;
  if (events[begin].kind == KVC_EVENT_CLEARED) return end;
  while (end < events.size() && end - begin < kMostEvents && events[end].kind == events[begin].kind) ++end;
  return end;
}

}  // namespace

MessageFormat::Group MessageFormat::group_of(const GroupRules& rules) noexcept {
  const bool latent = rules.row == RowKind::kLatent;
  if (rules.holds_state()) return {.kind = "mamba"};
  if (rules.holds_encoder()) return {.kind = "cross_attention"};
  if (rules.visible.window > 0) {
    return {.kind = latent ? "sliding_window_mla" : "sliding_window", .window_tokens = rules.visible.window};
  }
  if (rules.visible.chunk > 0) return {.kind = "chunked_local_attention"};
  return {.kind = latent ? "mla_attention" : "full_attention"};
}

MessageSize write_message(const MessageFormat& format, const EventList& list, std::span<uint8_t> out, bool measure) {
  const std::span<const kvc_event> events = list.events;
  MsgpackWriter writer(out);
  writer.put_short_list(3);
  writer.put_float(format.timestamp);
  const size_t header = writer.size();
  writer.put_list(0);
  MessageSize message;
  size_t in_list = 0;
  for (bool full = false; !full && message.events < events.size();) {
    const size_t begin = message.events;
    for (size_t end = segment_end(events, begin); !full; end = begin + (end - begin) / 2) {
      const size_t before = writer.size();
      const size_t added = Segment(format, list, begin, end, &writer).put();
      if (measure || writer.size() + kRankBytes <= out.size()) {
        in_list += added;
        message.events = end;
        break;
      }
      full = end - begin == 1;
      if (full && begin == 0) return {0, writer.size() + kRankBytes};
      writer.go_back(before);
    }
  }
  format.rank < 0 ? writer.put_nil() : writer.put_integer(format.rank);
  writer.set_list(header, in_list);
  message.bytes = writer.size();
  return message;
}

}  // namespace kvc
