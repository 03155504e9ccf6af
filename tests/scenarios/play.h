// Play: scenarios name their sequences by small numbers. It maps them to a Harness, and checks every step.
#pragma once

#include <map>
#include <vector>

#include "harness.h"

namespace kvt {

class Play {
 public:
  struct Append {
    int sequence;
    int32_t tokens;
  };
  struct Fork {
    int child, parent;
    int64_t position;  // -1 = the end
  };
  static constexpr int64_t kEnd = -1;

  Play(const CacheSpec &spec, const Options &options) : h_(spec, options) {}

  // Runs a batch, and adds missing sequences. Compares attention, page tables, K and V, and checks the invariants.
  void step(const std::vector<Append> &batch) {
    std::vector<Harness::Row> rows;
    for (const Append &a : batch) {
      if (!handles_.count(a.sequence)) handles_[a.sequence] = h_.add();
      rows.push_back({handles_[a.sequence], a.tokens});
    }
    if (h_.step(rows)) throw Mismatch("scenario: a step was refused");
    for (const Append &a : batch) verify(a.sequence);
    h_.check_invariants();
  }
  // A row: a tree of a sequence, or a number of plain tokens.
  struct Grow {
    int sequence;
    std::vector<int32_t> parents;
    int32_t plain = 0;
  };
  // The same with trees. Attention of every layer is compared.
  void grow(const std::vector<Grow> &batch) {
    std::vector<Harness::Row> rows;
    for (const Grow &g : batch) {
      if (!handles_.count(g.sequence)) handles_[g.sequence] = h_.add();
      const int32_t tokens = g.parents.empty() ? g.plain : static_cast<int32_t>(g.parents.size());
      rows.push_back({handles_[g.sequence], tokens, 0, g.parents});
    }
    int forward = -1;
    if (h_.begin(rows, &forward)) throw Mismatch("scenario: a step with trees was refused");
    for (size_t layer = 0; layer < h_.spec().layers.size(); layer++) h_.attend_layer(forward, static_cast<int>(layer));
    if (h_.end(forward)) throw Mismatch("scenario: a step with trees did not end");
    for (const Grow &g : batch) verify(g.sequence);
    h_.check_invariants();
  }
  void commit(const std::vector<std::pair<int, int32_t>> &leaves) {
    std::vector<int> handles;
    std::vector<int32_t> nodes;
    for (const auto &[sequence, leaf] : leaves) {
      handles.push_back(handles_.at(sequence));
      nodes.push_back(leaf);
    }
    if (h_.commit(handles, nodes)) throw Mismatch("scenario: a commit was refused");
    for (const auto &[sequence, leaf] : leaves) verify(sequence);
    h_.check_invariants();
  }
  // Forks a sequence at each position, then truncates it to each position from its end to 0. Library and model agree
  // which positions work, and the sequence has the right contents there. `must`: positions that have to work.
  template <class Must>
  void fork_and_truncate_everywhere(int sequence, Must must) {
    const int s = handle(sequence);
    const int64_t length = h_.length(s);
    for (int64_t t = 0; t <= length; t++) {
      h_.check_nearest(s, t);
      std::vector<int> children;
      const std::vector<int64_t> at{t};
      const kvc_status status = h_.fork({s}, &at, &children);
      if ((status == KVC_OK) != h_.position_works(s, t)) throw Mismatch("scenario: a fork after a slide");
      if (must(t) && status) throw Mismatch("scenario: this position must work");
      if (status) continue;
      h_.step({{children[0], 3}});
      h_.check_tables(children[0]);
      h_.check_contents(children[0]);
      h_.remove(children);
    }
    for (int64_t t = length - 1; t >= 0; t--) {
      const kvc_status status = h_.truncate({s}, {t});
      if ((status == KVC_OK) != h_.position_works(s, t)) throw Mismatch("scenario: a truncate after a slide");
      if (status) continue;
      h_.step({{s, 1}});
      h_.check_contents(s);
      h_.check_tables(s);
      h_.truncate({s}, {t});
    }
    if (h_.length(s) != 0) throw Mismatch("scenario: 0 always works");
  }
  // Sets streaming windows of sequences, and adds missing sequences.
  struct Stream {
    int sequence;
    int64_t sinks, window;
  };
  void stream(const std::vector<Stream> &streams, bool prefix_is_sink = false) {
    std::vector<int> handles;
    std::vector<int64_t> sinks, windows;
    for (const Stream &s : streams) {
      if (!handles_.count(s.sequence)) handles_[s.sequence] = h_.add();
      handles.push_back(handles_[s.sequence]);
      sinks.push_back(s.sinks);
      windows.push_back(s.window);
    }
    if (h_.set_streaming(handles, sinks, windows, prefix_is_sink)) throw Mismatch("scenario: a window was refused");
    for (const Stream &s : streams) verify(s.sequence);
    h_.check_invariants();
  }
  void decode(const std::vector<int> &sequences) {
    std::vector<Append> batch;
    for (int s : sequences) batch.push_back({s, 1});
    step(batch);
  }
  void fork(const std::vector<Fork> &forks) {
    std::vector<int> parents, children;
    std::vector<int64_t> positions;
    for (const Fork &f : forks) {
      parents.push_back(handles_.at(f.parent));
      positions.push_back(f.position);
    }
    if (h_.fork(parents, &positions, &children)) throw Mismatch("scenario: a fork was refused");
    for (size_t i = 0; i < forks.size(); i++) {
      handles_[forks[i].child] = children[i];
      verify(forks[i].child);
      verify(forks[i].parent);
    }
    h_.check_invariants();
  }
  // Drops this many tokens from the end of each sequence.
  void drop(const std::vector<Append> &drops) {
    std::vector<int> handles;
    std::vector<int64_t> lengths;
    for (const Append &d : drops) {
      handles.push_back(handles_.at(d.sequence));
      lengths.push_back(h_.length(handles.back()) - d.tokens);
    }
    if (h_.truncate(handles, lengths)) throw Mismatch("scenario: a truncate was refused");
    for (const Append &d : drops) verify(d.sequence);
    h_.check_invariants();
  }
  void remove(int sequence) {
    h_.remove({handles_.at(sequence)});
    handles_.erase(sequence);
    h_.check_invariants();
  }
  void verify(int sequence) {
    h_.check_tables(handles_.at(sequence));
    h_.check_contents(handles_.at(sequence));
  }
  void verify_all() {
    for (const auto &[sequence, handle] : handles_) verify(sequence);
    h_.check_stats();
    h_.check_invariants();
  }
  void expect_empty() {
    for (size_t g = 0; g < h_.spec().groups.size(); g++) {
      if (h_.used(static_cast<int>(g))) throw Mismatch("scenario: pages left over");
    }
    h_.check_stats();
  }
  std::vector<int> sequences() const {
    std::vector<int> all;
    for (const auto &[sequence, handle] : handles_) all.push_back(sequence);
    return all;
  }
  int handle(int sequence) const { return handles_.at(sequence); }
  void adopt(int sequence, int handle) { handles_[sequence] = handle; }
  Harness &harness() { return h_; }

 private:
  Harness h_;
  std::map<int, int> handles_;
};

}  // namespace kvt
