// Driver: random operations on a Harness, for the model tests.
#pragma once

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "harness.h"

namespace kvt {

// The source of a driver's choices.
class Choices {
 public:
  virtual ~Choices() = default;
  virtual bool done() { return false; }  // whether the driver must stop
  virtual int64_t uniform(int64_t low, int64_t high) = 0;
  virtual bool chance(double p) = 0;
  virtual void shuffle(std::vector<int> *values) = 0;
};

class SeededChoices : public Choices {
 public:
  explicit SeededChoices(uint64_t seed) : random_(seed) {}
  int64_t uniform(int64_t low, int64_t high) override {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool chance(double p) override { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  void shuffle(std::vector<int> *values) override { std::shuffle(values->begin(), values->end(), random_); }

 private:
  std::mt19937_64 random_;
};

// Makes one random operation after another. They depend on the choices and on the model's predictions only, so a run
// can be repeated.
class Driver {
 public:
  // choices: by the seed in `options`, or the caller's, which must outlive the driver.
  Driver(const CacheSpec &spec, const Options &options, Choices *choices = nullptr)
      : h_(spec, options), seeded_(options.seed * 77 + 1), choices_(choices ? *choices : seeded_) {}

  void run(int64_t operations) {
    for (int64_t i = 0; i < operations && !choices_.done(); i++) {
      one();
      if (i % 64 == 63) h_.check_all();
    }
    for (int f : h_.open()) h_.abort(f);
    h_.check_all();
    std::vector<int> all = h_.live();
    choices_.shuffle(&all);
    if (!all.empty()) h_.remove(all);
    for (size_t g = 0; g < h_.spec().groups.size(); g++) {
      if (h_.used(static_cast<int>(g)) != 0) throw Mismatch("model: pages left over");
    }
    h_.check_all();
  }
  Harness &harness() { return h_; }

 private:
  int64_t uniform(int64_t low, int64_t high) { return choices_.uniform(low, high); }
  bool chance(double p) { return choices_.chance(p); }
  int pick(const std::vector<int> &from) { return from[uniform(0, static_cast<int64_t>(from.size()) - 1)]; }

  // A position at which fork and truncate probably work. Most tokens of a long sequence are outside of its windows.
  int64_t some_position(int handle) {
    const int64_t length = h_.length(handle), page = h_.spec().page_size;
    if (h_.sinks(handle) > 0 && chance(0.3)) return std::min(length, uniform(0, h_.sinks(handle) + page));
    switch (uniform(0, 5)) {
      case 0:
        return uniform(0, length);
      case 1:
        return std::min(length, uniform(0, length) / page * page);
      case 2:
        return length - std::min(length, uniform(0, h_.spec().rollback + 1));
      case 3:
        return length - std::min<int64_t>(length, uniform(0, 3));
      case 4:
        return length;
      default:
        return chance(0.3) ? 0 : length - std::min(length, uniform(0, page));
    }
  }

  // The cross group of a batch's encoder tokens; in most cases none.
  int some_encoder() {
    if (chance(0.75)) return -1;
    for (size_t g = 0; g < h_.spec().groups.size(); g++) {
      if (h_.is_cross(g)) return static_cast<int>(g);
    }
    return -1;
  }

  std::vector<Harness::Row> some_batch() {
    std::vector<Harness::Row> rows = some_rows(some_encoder());
    if (chance(0.06)) spoil(&rows);
    return rows;
  }

  std::vector<Harness::Row> some_rows(int encoder) {
    std::vector<int> from = h_.idle();
    choices_.shuffle(&from);
    std::vector<Harness::Row> rows;
    int64_t room = h_.spec().max_batch_tokens;
    const bool decode = chance(0.5);
    const int64_t count = uniform(1, 5);
    for (int handle : from) {
      if (static_cast<int64_t>(rows.size()) >= count || room < 1) break;
      const int64_t n = decode && !chance(0.2) ? 1 : uniform(1, std::max<int64_t>(1, room / 2));
      rows.push_back({handle, static_cast<int32_t>(n)});
      if (encoder < 0 && (h_.nodes(handle) > 0 ? chance(0.9) : chance(0.25))) make_tree(&rows.back());
      if (encoder < 0 && chance(rows.back().parents.empty() ? 0.2 : 0.01)) make_spans(&rows.back());
      room -= rows.back().length;
    }
    while (chance(0.15)) {  // inert rows anywhere
      const int64_t n = std::min<int64_t>(room, uniform(0, 3));
      if (n < 0) break;
      room -= n;
      rows.insert(rows.begin() + uniform(0, static_cast<int64_t>(rows.size())),
                  {Harness::kInert, static_cast<int32_t>(n)});
      if (static_cast<int>(rows.size()) > h_.spec().max_sequences) rows.pop_back();
    }
    for (Harness::Row &row : rows) row.encoder = encoder;
    return rows;
  }

  // Makes a row a tree row: chains, bushes, several roots, nodes of earlier rounds.
  void make_tree(Harness::Row *row) {
    const int32_t before = h_.nodes(row->sequence);
    if (!chance(0.03)) row->length = std::min(row->length, std::max(1, h_.spec().tree_nodes() - before));
    const int64_t style = uniform(0, 3);
    for (int32_t i = before; i < before + row->length; i++) {
      const int64_t parent = style == 0   ? i - 1
                             : style == 1 ? (i - 1) / 2
                             : style == 2 ? uniform(-1, i - 1)
                                          : uniform(std::max(-1, i - 3), i - 1);
      row->parents.push_back(i == 0 ? KVC_TREE_ROOT : static_cast<int32_t>(parent));
    }
    if (!chance(0.02)) return;
    const int64_t bad = uniform(0, row->length - 1);
    row->parents[bad] = static_cast<int32_t>(bad == 0 ? -3 : uniform(-3, before + row->length));
  }

  // Spans that are adjacent or have tokens between them. A span id may occur again.
  void make_spans(Harness::Row *row) {
    while (static_cast<int32_t>(row->spans.size()) < row->length) {
      const int32_t id = chance(0.01) ? -1 : static_cast<int32_t>(uniform(0, 3));
      const int64_t n = std::min(row->length - static_cast<int64_t>(row->spans.size()), uniform(1, 6));
      row->spans.insert(row->spans.end(), static_cast<size_t>(n), id);
    }
  }

  // A batch that begin refuses, in most cases.
  void spoil(std::vector<Harness::Row> *rows) {
    switch (uniform(0, 6)) {
      case 0:
        if (!rows->empty()) rows->push_back((*rows)[0]);
        break;
      case 1:
        if (!rows->empty()) {
          Harness::Row &row = (*rows)[uniform(0, static_cast<int64_t>(rows->size()) - 1)];
          row = {row.sequence, 0};
        }
        break;
      case 2:
        rows->push_back({Harness::kInert, h_.spec().max_batch_tokens + 1});
        break;
      case 3:
        if (!h_.stale().empty()) {
          rows->push_back({Harness::kRaw, 1, h_.stale()[uniform(0, static_cast<int64_t>(h_.stale().size()) - 1)]});
        }
        break;
      case 4:
        for (int handle : h_.live()) {
          if (h_.is_busy(handle)) rows->push_back({handle, 1});
        }
        break;
      case 5:
        if (!rows->empty()) (*rows)[0] = {(*rows)[0].sequence, -3};
        break;
      default:
        while (static_cast<int>(rows->size()) <= h_.spec().max_sequences) rows->push_back({Harness::kInert, 0});
        break;
    }
  }

  void touched(int handle) {
    h_.check_tables(handle);
    if (h_.is_busy(handle)) return;
    if (chance(0.5)) h_.check_contents(handle);
  }

  void one() {
    const std::vector<int> live = h_.live(), idle = h_.idle(), open = h_.open();
    const int64_t dice = uniform(0, h_.spec().streaming ? 117 : 109);
    if (live.empty() || dice < 5) {
      std::vector<int> added;
      h_.add(static_cast<int>(chance(0.03) ? uniform(-1, 30) : uniform(1, 2)), &added);
      for (int handle : added) h_.check_tables(handle);
    } else if (dice < 11) {
      remove(live);
    } else if (dice < 21) {
      fork(live);
    } else if (dice < 30) {
      truncate(live);
    } else if (dice < 58) {
      step();
    } else if (dice < 76) {
      if (!open.empty()) advance(pick(open));
    } else if (dice < 80) {
      if (!idle.empty()) {
        const int handle = chance(0.1) ? pick(live) : pick(idle);
        h_.import(handle, static_cast<int>(uniform(1, chance(0.05) ? h_.spec().max_batch_tokens + 3 : 9)), chance(0.5),
                  chance(0.1));
        touched(handle);
      }
    } else if (dice < 84) {
      h_.check_max_append(pick(live));
    } else if (dice < 87) {
      h_.can_fit(some_batch());
    } else if (dice < 90) {
      const int handle = pick(live);
      h_.check_nearest(handle, uniform(chance(0.1) ? -2 : 0, h_.length(handle) + (chance(0.1) ? 2 : 0)));
    } else if (dice < 93) {
      exports(pick(live));
    } else if (dice < 95) {
      h_.check_stats();
    } else if (dice < 96) {
      if (!h_.stale().empty()) h_.check_stale(h_.stale()[uniform(0, static_cast<int64_t>(h_.stale().size()) - 1)]);
      h_.check_stale(0);
      if (!open.empty()) h_.check_stale(h_.forward_id(open[0]));
    } else if (dice < 97) {
      if (chance(0.1)) h_.clear();
    } else if (dice < 100) {
      touched(pick(live));
    } else if (dice < 110) {
      commit(live);
    } else {
      stream(live);
    }
    h_.check_invariants();
  }

  void remove(const std::vector<int> &live) {
    std::vector<int> handles{pick(live)};
    while (chance(0.3)) handles.push_back(chance(0.05) ? handles[0] : pick(live));
    if (!chance(0.1)) {
      std::sort(handles.begin(), handles.end());
      handles.erase(std::unique(handles.begin(), handles.end()), handles.end());
      choices_.shuffle(&handles);
    }
    if (chance(0.03)) handles.push_back(-5);  // a stale id
    h_.remove(handles);
  }

  void fork(const std::vector<int> &live) {
    std::vector<int> parents, children;
    std::vector<int64_t> positions;
    do {
      parents.push_back(pick(live));
      positions.push_back(chance(0.2) ? -1 : some_position(parents.back()));
      if (chance(0.02)) positions.back() = h_.length(parents.back()) + uniform(1, 3);
      if (chance(0.02)) positions.back() = -uniform(2, 4);
    } while (chance(0.25));
    if (chance(0.02)) parents.push_back(-5), positions.push_back(0);
    h_.fork(parents, chance(0.1) ? nullptr : &positions, &children);
    for (int handle : parents) {
      if (handle >= 0) touched(handle);
    }
    for (int handle : children) touched(handle);
  }

  // Any of the sequences with trees, in any order.
  void commit(const std::vector<int> &live) {
    std::vector<int> handles;
    for (int handle : live) {
      if ((h_.nodes(handle) > 0 && !h_.is_busy(handle)) ? chance(0.7) : chance(0.02)) handles.push_back(handle);
    }
    if (!handles.empty() && chance(0.02)) handles.push_back(handles[0]);
    if (chance(0.02)) handles.push_back(-5);
    choices_.shuffle(&handles);
    std::vector<int32_t> leaves;
    for (int handle : handles) {
      const int32_t nodes = handle < 0 ? 1 : h_.nodes(handle);
      leaves.push_back(chance(0.02) ? nodes : chance(0.02) ? -2 : static_cast<int32_t>(uniform(-1, nodes - 1)));
    }
    h_.commit(handles, leaves);
    for (int handle : handles) {
      if (handle >= 0) touched(handle);
    }
  }

  void stream(const std::vector<int> &live) {
    std::vector<int> handles{pick(live)};
    while (chance(0.2)) handles.push_back(pick(live));
    if (!chance(0.1)) {
      std::sort(handles.begin(), handles.end());
      handles.erase(std::unique(handles.begin(), handles.end()), handles.end());
    }
    std::vector<int64_t> sinks, windows;
    for (size_t i = 0; i < handles.size(); i++) {
      sinks.push_back(chance(0.2) ? 0 : uniform(0, chance(0.5) ? 5 : 2 * h_.spec().page_size));
      windows.push_back(sinks.back() + uniform(1, chance(0.5) ? 9 : 40));
      if (chance(0.05)) windows.back() = sinks.back();
      if (chance(0.1)) sinks.back() = windows.back() = 0;
      if (chance(0.02)) windows.back() = 0;
      if (chance(0.02)) sinks.back() = -1;
    }
    h_.set_streaming(handles, sinks, windows, chance(0.2));
    for (int handle : handles) touched(handle);
  }

  void truncate(const std::vector<int> &live) {
    std::vector<int> handles{pick(live)};
    while (chance(0.2)) handles.push_back(pick(live));
    if (!chance(0.1)) {
      std::sort(handles.begin(), handles.end());
      handles.erase(std::unique(handles.begin(), handles.end()), handles.end());
    }
    std::vector<int64_t> lengths;
    for (int handle : handles) {
      lengths.push_back(chance(0.03) ? h_.length(handle) + 1 : chance(0.02) ? -1 : some_position(handle));
    }
    h_.truncate(handles, lengths);
    for (int handle : handles) touched(handle);
  }

  void step() {
    const std::vector<Harness::Row> rows = some_batch();
    int forward = -1, layer_begin = 0, layer_end = 0;
    const int layers = static_cast<int>(h_.spec().layers.size());
    if (chance(0.05)) {
      layer_begin = static_cast<int>(uniform(0, layers - 1));
      layer_end = static_cast<int>(uniform(layer_begin + 1, layers));
      if (chance(0.2)) layer_end = layers + 1;
    }
    if (h_.begin(rows, &forward, layer_begin, layer_end)) return;
    if (chance(0.3)) return;  // the step stays open
    h_.run_layers(forward);
    if (chance(0.1)) {
      h_.abort(forward);
    } else {
      h_.end(forward);
    }
    for (const Harness::Row &row : rows) {
      if (row.sequence >= 0) touched(row.sequence);
    }
  }

  // A random call on an open forward.
  void advance(int forward) {
    switch (uniform(0, 11)) {
      case 0:
        h_.abort(forward);
        cancelled_.erase(forward);
        break;
      case 1:
        if (chance(0.5)) {
          h_.cancel(forward);
          cancelled_.insert(forward);
        }
        break;
      case 2:
      case 3:
        h_.check_misuse(forward);
        break;
      case 4:
      case 5:
        if (h_.end(forward) == KVC_OK) cancelled_.erase(forward);
        break;
      default:
        if (cancelled_.count(forward)) {
          h_.check_misuse(forward);
          h_.end(forward);
          h_.abort(forward);
          cancelled_.erase(forward);
          break;
        }
        h_.run_layers(forward);
        if (chance(0.8)) h_.end(forward);
        break;
    }
  }

  void exports(int handle) {
    const int layer = static_cast<int>(uniform(0, static_cast<int64_t>(h_.spec().layers.size()) - 1));
    const int64_t length = h_.length_in(handle, h_.spec().layers[layer].group);
    const Harness::Freed gone = h_.freed(handle, h_.spec().layers[layer].group);
    if (h_.is_busy(handle) || length == 0) {
      if (h_.is_busy(handle)) h_.check_export_refused(handle, layer, 0, 0);
      return;
    }
    if (gone.end < length) {
      const int64_t begin = uniform(gone.end, length - 1);
      h_.check_contents(handle, layer, begin, uniform(begin + 1, length));
    }
    if (gone.begin > 0) {
      const int64_t end = uniform(1, std::min(gone.begin, length));
      h_.check_contents(handle, layer, uniform(0, end - 1), end);
    }
    if (gone.begin < gone.end) {
      const int64_t end = uniform(gone.begin + 1, length);
      h_.check_export_refused(handle, layer, uniform(0, std::min(end, gone.end) - 1), end);
    }
    h_.check_export_refused(handle, layer, 0, length + uniform(1, 5));
    h_.check_export_refused(handle, -1, 0, 0);
    h_.check_export_refused(handle, layer, -1, 0);
  }

  Harness h_;
  SeededChoices seeded_;
  Choices &choices_;
  std::set<int> cancelled_;
};

}  // namespace kvt
