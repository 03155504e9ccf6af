// Sequences, and steps with their layers.
#include <algorithm>
#include <cmath>

#include "objects.h"

namespace fuzz {
namespace {

// The tokens of a path from a root to a node.
std::vector<Token> path_of(const Sequence &s, int32_t leaf) {
  std::vector<Token> path;
  for (int32_t node = leaf; node >= 0; node = s.nodes[node].parent) path.push_back(s.nodes[node].token);
  std::reverse(path.begin(), path.end());
  return path;
}

void forget(Cache &c, kvc_seq id) {
  c.stale.push_back(id);
  std::erase_if(c.sequences, [&](const Sequence &s) { return s.id == id; });
}

void fork(World &w, Cache &c, int64_t n, const kvc_seq *ids) {
  std::vector<int64_t> at;
  for (int64_t i = 0; i < n; i++) {
    const Sequence *s = c.find(ids[i]);
    at.push_back(w.in.number(s && w.in.one_in(2) ? w.in.between(0, static_cast<int64_t>(s->tokens.size())) : -1));
  }
  kvc_seq *children = w.array(std::vector<kvc_seq>(static_cast<size_t>(n)));
  const int64_t *positions = w.in.pointer(w.in.one_in(4) ? nullptr : w.array(at));
  const int64_t count = w.in.fewer(n);
  if (CALL(kvc_seq_fork, w.handle(c), count, w.in.pointer(ids), positions, w.in.pointer(children), w.stream(),
           w.error()) != KVC_OK) {
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    Sequence child = *c.find(ids[i]);
    child.id = children[i];
    if (positions && positions[i] >= 0) child.tokens.resize(static_cast<size_t>(positions[i]));
    c.sequences.push_back(child);
  }
}

void commit(World &w, Cache &c, int64_t n, const kvc_seq *ids) {
  std::vector<int32_t> drawn;
  for (int64_t i = 0; i < n; i++) {
    const Sequence *s = c.find(ids[i]);
    drawn.push_back(w.in.number(static_cast<int32_t>(w.in.between(-1, s ? std::ssize(s->nodes) - 1 : 0))));
  }
  const int32_t *leaves = w.array(drawn);
  const int64_t count = w.in.fewer(n);
  if (CALL(kvc_seq_commit, w.handle(c), count, w.in.pointer(ids), w.in.pointer(leaves), w.stream(), w.error()) !=
      KVC_OK) {
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    Sequence *s = c.find(ids[i]);
    const std::vector<Token> path = path_of(*s, leaves[i]);
    s->tokens.insert(s->tokens.end(), path.begin(), path.end());
    s->nodes.clear();
  }
}

void stream(World &w, Cache &c, int64_t n, const kvc_seq *ids) {
  std::vector<int64_t> sinks, windows;
  for (int64_t i = 0; i < n; i++) {
    sinks.push_back(w.in.number(w.in.below(4)));
    windows.push_back(w.in.number(w.in.one_in(5) ? 0 : sinks.back() + w.in.between(1, 9)));
  }
  int64_t *const s = w.array(sinks), *const l = w.array(windows);
  CALL(kvc_seq_set_streaming, w.handle(c), w.in.fewer(n), w.in.pointer(ids), w.in.pointer(s), w.in.pointer(l),
       w.in.number(static_cast<uint32_t>(w.in.below(2))), w.error());
  CALL(kvc_seq_get_streaming, w.handle(c), n, w.in.pointer(ids), w.in.pointer(s), w.in.pointer(l), w.error());
}

// Queries about several sequences.
void ask(World &w, Cache &c, int64_t n, const kvc_seq *ids) {
  int64_t *numbers = w.in.pointer(w.array(std::vector<int64_t>(static_cast<size_t>(n))));
  const int64_t count = w.in.fewer(n);
  const int32_t group = w.in.number(static_cast<int32_t>(w.in.below(std::ssize(c.groups))));
  const int64_t capacity = w.in.below(20);
  const Sequence *s = c.find(ids[0]);
  switch (w.in.below(6)) {
    case 0:
      CALL(kvc_seq_lengths, w.handle(c), count, w.in.pointer(ids), numbers, w.error());
      // It reads no bytes, so inputs that existed before it make the same calls as before.
      CALL(kvc_seq_exclusive_pages, c.cache, group, count, ids, numbers, w.plain_error());
      break;
    case 1:
      CALL(kvc_seq_max_append, w.handle(c), count, w.in.pointer(ids), numbers, w.error());
      break;
    case 2:
      CALL(kvc_seq_encoder_lengths, w.handle(c), group, count, w.in.pointer(ids), numbers, w.error());
      break;
    case 3:
      CALL(kvc_seq_tree_nodes, w.handle(c), count, w.in.pointer(ids), reinterpret_cast<int32_t *>(numbers), w.error());
      break;
    case 4:
      CALL(kvc_seq_pages, w.handle(c), ids[0], group,
           w.in.pointer(w.array(std::vector<int32_t>(static_cast<size_t>(capacity)))), w.in.fewer(capacity), numbers,
           w.error());
      break;
    default:
      CALL(kvc_seq_nearest_position, w.handle(c), ids[0],
           w.in.number(s ? w.in.between(0, static_cast<int64_t>(s->tokens.size())) : 0), numbers, numbers, w.error());
  }
}

}  // namespace

void call_sequence(World &w) {
  Cache &c = w.some_cache();
  if (c.cache == nullptr) return;
  const int64_t n = w.in.between(1, 3);
  std::vector<kvc_seq> drawn;
  for (int64_t i = 0; i < n; i++) drawn.push_back(w.some_sequence(c));
  kvc_seq *ids = w.array(drawn);
  const int64_t choice = w.in.below(16);
  const auto count = [&] { return w.in.fewer(n); };  // a hostile count is negative, or lower
  if (choice < 4 || c.sequences.empty()) {
    const int64_t some = w.in.count(n, int64_t{1} << 20);
    if (CALL(kvc_seq_add, w.handle(c), some, w.in.pointer(ids), w.error()) == KVC_OK) {
      for (int64_t i = 0; i < some; i++) c.sequences.push_back({ids[i], {}, {}, {}});
    }
  } else if (choice == 4) {
    const int64_t some = count();
    if (CALL(kvc_seq_remove, w.handle(c), some, w.in.pointer(ids), w.error()) == KVC_OK) {
      for (int64_t i = 0; i < some; i++) forget(c, ids[i]);
    }
  } else if (choice < 7) {
    fork(w, c, n, ids);
  } else if (choice == 7) {
    std::vector<int64_t> lengths;
    for (const kvc_seq id : drawn) {
      const Sequence *s = c.find(id);
      lengths.push_back(w.in.number(s ? w.in.between(0, static_cast<int64_t>(s->tokens.size())) : 0));
    }
    const int64_t *to = w.array(lengths), some = count();
    if (CALL(kvc_seq_truncate, w.handle(c), some, w.in.pointer(ids), w.in.pointer(to), w.error()) == KVC_OK) {
      for (int64_t i = 0; i < some; i++) {
        c.find(ids[i])->tokens.resize(static_cast<size_t>(to[i]));
        c.find(ids[i])->nodes.clear();
      }
    }
  } else if (choice < 10) {
    commit(w, c, n, ids);
  } else if (choice == 10) {
    stream(w, c, n, ids);
  } else if (choice == 11) {
    CALL(kvc_seq_set_rope, w.handle(c), count(), w.in.pointer(ids), w.in.number(static_cast<int32_t>(w.in.below(2))),
         w.error());
  } else if (choice == 12) {
    CALL(kvc_seq_checkpoint, w.handle(c), count(), w.in.pointer(ids), w.error());
  } else {
    ask(w, c, n, ids);
  }
}

namespace {

// Begins a step of plain rows, tree rows, spans or encoder tokens. The step may run in a graph.
void begin(World &w, Cache &c) {
  kvc_batch batch;
  kvc_batch_init(&batch);
  Step step{};
  std::vector<int32_t> lengths, parents, spans;
  std::vector<kvc_seq> ids;
  const int64_t kind = w.in.below(6);  // 0..2: plain, else trees, spans, encoder
  for (int64_t rows = w.in.between(1, 3); rows-- > 0;) {
    const kvc_seq id = w.in.one_in(8) ? 0 : w.some_sequence(c);
    const int32_t n = w.in.number(static_cast<int32_t>(w.in.between(1, 5)));
    const Sequence *s = c.find(id);
    const auto nodes = static_cast<int32_t>(s ? s->nodes.size() : 0);
    Step::Row &row = step.rows.emplace_back();
    row.id = id;
    const bool tree = kind == 3 && (nodes > 0 || !w.in.one_in(4));
    for (int32_t i = 0; i < std::clamp(n, 0, 64); i++) {
      row.tags.push_back(static_cast<uint8_t>(1 + (c.stale.size() + id + i) % 8));
      parents.push_back(w.in.number(tree ? static_cast<int32_t>(w.in.between(-1, nodes + i - 1)) : KVC_TREE_NONE));
      spans.push_back(w.in.number(static_cast<int32_t>(w.in.below(2))));
    }
    if (kind == 3 && !row.tags.empty() && parents.end()[-std::ssize(row.tags)] != KVC_TREE_NONE) {
      row.parents.assign(parents.end() - std::ssize(row.tags), parents.end());
    }
    ids.push_back(id);
    lengths.push_back(n);
  }
  const auto layers = static_cast<int32_t>(c.layers.size());
  if (w.in.one_in(8)) batch.layer_begin = w.some_layer(c), batch.layer_end = layers;
  for (int g = 0; kind == 5 && g < static_cast<int>(c.groups.size()); g++) {
    if (c.groups[g].visibility == KVC_VISIBLE_ENCODER) step.encoder = g;
  }
  if (!c.graphs.empty() && w.in.one_in(3)) batch.graph = c.graphs[0];
  batch.num_sequences = w.in.count(static_cast<int32_t>(ids.size()), 1 << 20);
  batch.sequences = w.in.pointer(w.array(ids));
  batch.append_lengths = w.in.pointer(w.array(lengths));
  if (kind == 3) batch.tree_parents = w.array(parents);
  if (kind == 4) batch.span_ids = w.array(spans);
  batch.encoder_group = step.encoder + 1;
  w.in.size_of(batch);
  w.in.numbers(batch.layer_begin, batch.layer_end, batch.encoder_group, batch.reserved, batch.graph);
  const kvc_batch *given = w.in.pointer(&batch);
  if (w.in.one_in(8)) CALL(kvc_cache_can_fit, w.handle(c), given, w.error());
  if (CALL(kvc_forward_begin, w.handle(c), given, w.stream(), w.in.pointer(&step.id), w.error()) != KVC_OK) return;
  step.rows.resize(static_cast<size_t>(batch.num_sequences));
  step.encoder = batch.encoder_group - 1;
  c.steps.push_back(step);
}

// Adds the tokens of a step to the sequences of the model.
void keep(Cache &c, const Step &step) {
  for (const Step::Row &row : step.rows) {
    Sequence *s = c.find(row.id);
    if (s == nullptr) continue;  // an inert row, or removed during the step
    for (size_t i = 0; i < row.tags.size(); i++) {
      const Token token{step.unknown ? kUnknown : row.tags[i], step.stored};
      if (step.encoder >= 0) {
        s->encoders[step.encoder].push_back(token);
      } else if (!row.parents.empty()) {
        s->nodes.push_back({token, row.parents[i]});
      } else {
        s->tokens.push_back(token);
      }
    }
  }
}

void describe(World &w, Cache &c, kvc_forward id) {
  kvc_forward_info info;
  kvc_forward_info_init(&info);
  w.in.size_of(info);
  CALL(kvc_forward_get_info, w.handle(c), id, w.in.pointer(&info), w.error());
  char *text = w.allocate(1500);
  CALL(kvc_forward_describe, w.handle(c), id, w.in.pointer(text), w.in.fewer(1500), nullptr, w.error());
}

}  // namespace

void call_step(World &w) {
  Cache &c = w.some_cache();
  if (c.cache == nullptr) return;
  Step *step = w.some_step(c);
  const int64_t choice = w.in.below(12);
  if (choice >= 10) {
    kvc_graph_config config;
    kvc_graph_config_init(&config);
    w.in.size_of(config);
    w.in.numbers(config.flags, config.max_sequences, config.max_tokens, config.max_pages_per_row, config.reserved);
    kvc_forward graph = c.graphs.empty() ? w.wrong_id(c, false) : w.in.number(c.graphs[0]);
    if (choice == 10 && c.graphs.empty()) {
      if (CALL(kvc_graph_create, w.handle(c), w.in.pointer(&config), w.in.pointer(&graph), w.error()) == KVC_OK) {
        c.graphs.push_back(graph);
      }
    } else if (w.in.one_in(4) && CALL(kvc_graph_destroy, w.handle(c), graph, w.error()) == KVC_OK) {
      c.graphs.clear();
    }
    return;
  }
  if (step == nullptr) return begin(w, c);
  const kvc_forward id = w.in.wrong() ? w.wrong_id(c, false) : step->id;
  kvc_status status = KVC_ERROR_INTERNAL;
  if (choice < 2) return begin(w, c);
  if (choice == 2) return describe(w, c, id);
  if (choice == 3) {
    CALL(kvc_forward_cancel, w.handle(c), id, w.error());
    return;
  }
  const bool end = choice < 8;
  status =
      end ? CALL(kvc_forward_end, w.handle(c), id, w.error()) : CALL(kvc_forward_abort, w.handle(c), id, w.error());
  if (status != KVC_OK) return;
  const auto closed = std::find_if(c.steps.begin(), c.steps.end(), [&](const Step &s) { return s.id == id; });
  if (closed == c.steps.end()) die("a step that is not open was closed");
  if (end) keep(c, *closed);
  c.steps.erase(closed);
}

}  // namespace fuzz
