// Saved sequences. A saved one is kept, and later loaded into this cache or the other one. Sometimes its bytes are
// damaged first.
#include <algorithm>

#include "objects.h"

namespace fuzz {
namespace {

int32_t write_bytes(void *user, const void *data, int64_t bytes) {
  auto &w = *static_cast<World *>(user);
  if (w.failing_bytes-- == 0) return 5;
  w.writing.append(static_cast<const char *>(data), static_cast<size_t>(bytes));
  return 0;
}

int64_t read_bytes(void *user, void *data, int64_t bytes) {
  auto &w = *static_cast<World *>(user);
  if (w.failing_bytes-- == 0) return w.in.one_in(2) ? -1 : INT64_MAX;
  const size_t count = std::min(static_cast<size_t>(bytes), w.reading.size());
  std::memcpy(data, w.reading.data(), count);
  w.reading.erase(0, count);
  return static_cast<int64_t>(count);
}

void save(World &w, Cache &c) {
  const kvc_seq id = w.some_sequence(c);
  Sequence *s = c.find(id);
  std::vector<int32_t> tags;
  for (size_t i = 0; s != nullptr && i < s->tokens.size(); i++) tags.push_back(s->tokens[i].tag);
  kvc_save_args args;
  kvc_save_args_init(&args);
  args.write = w.in.wrong() ? nullptr : &write_bytes;
  args.write_user = &w;
  if (w.in.one_in(2)) {
    args.num_tokens = w.in.fewer(std::ssize(tags));
    args.tokens = w.in.pointer(w.array(tags));
  }
  if (w.in.one_in(2)) args.section_bytes = 4096;
  w.in.size_of(args);
  w.in.numbers(args.flags, args.section_bytes);
  w.failing_bytes = w.in.wrong() ? static_cast<int>(w.in.below(4)) : -1;
  w.writing.clear();
  if (CALL(kvc_seq_save, w.handle(c), id, w.in.pointer(&args), w.stream(), w.error()) != KVC_OK) return;
  w.saved = {w.writing, *s, &c, c.unknown, args.num_tokens > 0};
}

void load(World &w, Cache &c) {
  const Saved &saved = w.saved;
  w.reading = saved.bytes;
  // A failed load may have evicted pages from the prefix index, and they stay evicted. That would look like a change.
  const bool indexed = (c.config.flags & KVC_CACHE_PREFIX_INDEX) != 0;
  bool damaged = saved.bytes.empty();
  if (!indexed && !damaged && w.in.wrong()) {
    damaged = true;
    const auto at = static_cast<size_t>(w.in.below(std::ssize(saved.bytes)));
    if (w.in.one_in(2)) {
      w.reading.resize(at);
    } else {
      w.reading[at] = static_cast<char>(w.reading[at] ^ 1 << w.in.below(8));
    }
  }
  w.failing_bytes = !indexed && w.in.wrong() ? static_cast<int>(w.in.below(6)) : -1;
  std::vector<int32_t> tags(static_cast<size_t>(w.in.below(30)));
  kvc_load_args args;
  kvc_load_args_init(&args);
  args.read = w.in.wrong() ? nullptr : &read_bytes;
  args.read_user = &w;
  args.capacity = w.in.fewer(std::ssize(tags));
  args.tokens = w.in.pointer(w.array(tags));
  w.in.size_of(args);
  w.in.numbers(args.flags);
  kvc_seq id = 0;
  int64_t count = 0;
  if (CALL(kvc_seq_load, w.handle(c), w.in.pointer(&args), w.stream(), w.in.pointer(&id), &count, w.error()) !=
      KVC_OK) {
    return;
  }
  if (damaged) die("a damaged sequence was loaded");
  const auto length = std::ssize(saved.sequence.tokens);
  if (count != (saved.with_tokens ? length : 0)) die("load found %lld token ids", static_cast<long long>(count));
  for (int64_t i = 0; args.capacity > 0 && i < count; i++) {
    if (args.tokens[i] != saved.sequence.tokens[static_cast<size_t>(i)].tag) die("another token id");
  }
  Sequence loaded = saved.sequence;
  loaded.id = id;
  c.sequences.push_back(loaded);
  c.unknown = c.unknown || saved.unknown;
}

}  // namespace

void call_saves(World &w) {
  Cache &c = w.some_cache();
  if (c.cache == nullptr) return;
  if (w.in.one_in(2)) {
    load(w, c);
  } else {
    save(w, c);
  }
}

}  // namespace fuzz
