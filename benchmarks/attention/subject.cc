// SPDX-License-Identifier: Apache-2.0
#include "attention/subject.h"

#include <algorithm>

namespace kvc::benchmark {
namespace {

constexpr int64_t kColdBytes = int64_t{256} << 20;
constexpr int32_t kMinBatchTokens = 2048;

int copies_of(const Case& work) { return work.cold ? static_cast<int>(kColdBytes / work.kv_bytes()) + 2 : 1; }

int64_t pages_of(const Case& work, int64_t tokens) { return (tokens + work.page_size - 1) / work.page_size; }

// Decode and prefill. The sequences of a batch hold all tokens but the new ones, which are dropped after each sample.
class Attend : public Subject {
 public:
  Attend(const Case& work, const Options& options, Team* team)
      : Subject(work, options, team),
        fixture_(work, options, room(work), 2 * copies_of(work) * work.batch + 1,
                 std::max(kMinBatchTokens, work.new_tokens * work.batch)) {
    for (int c = 0; c < copies_of(work); ++c) batches_.push_back(make_batch());
  }

 protected:
  double run(int turn) override {
    const kvc_forward forward = fixture_.begin(batch(turn), work_.new_tokens);
    const double begin = now();
    fixture_.attend(forward, int64_t{work_.new_tokens} * work_.batch);
    const double took = now() - begin;
    fixture_.abort(forward);
    return took;
  }
  const char* pool() const override { return fixture_.pool(); }
  size_t page_bytes() const override { return fixture_.page_bytes(); }
  int copies() const override { return static_cast<int>(batches_.size()); }

  std::vector<int32_t> pages(int turn) const override {
    std::vector<int32_t> all;
    const auto shared = static_cast<size_t>(work_.shared / work_.page_size);
    for (const kvc_seq sequence : batch(turn)) {
      const std::vector<int32_t> pages = fixture_.pages(sequence);
      all.insert(all.end(), pages.begin() + (all.empty() ? 0 : static_cast<std::ptrdiff_t>(shared)), pages.end());
    }
    return all;
  }

 private:
  static int64_t room(const Case& work) {
    const int64_t own = pages_of(work, work.context - work.shared);
    return copies_of(work) * (pages_of(work, work.shared) + work.batch * own) + work.batch;
  }

  std::vector<kvc_seq> make_batch() {
    std::vector<kvc_seq> batch;
    if (work_.shared > 0) {
      const std::vector<kvc_seq> prefix = fixture_.add(1);
      fixture_.append(prefix, work_.shared);
      batch = fixture_.fork(std::vector<kvc_seq>(static_cast<size_t>(work_.batch), prefix[0]));
    } else {
      batch = fixture_.add(work_.batch);
    }
    const int32_t own = work_.context - work_.new_tokens - work_.shared;
    for (const kvc_seq sequence : batch) {
      if (own > 0) fixture_.append({sequence}, own);
    }
    return batch;
  }
  const std::vector<kvc_seq>& batch(int turn) const { return batches_[static_cast<size_t>(turn) % batches_.size()]; }

  Fixture fixture_;
  std::vector<std::vector<kvc_seq>> batches_;
};

// Between two uses of a page, 256 MiB are written. So the pages are cold.
class Append : public Subject {
 public:
  Append(const Case& work, const Options& options, Team* team)
      : Subject(work, options, team),
        fixture_(work, options, copies_of(work) * pages_of(work, work.new_tokens), copies_of(work),
                 std::max(kMinBatchTokens, work.new_tokens)),
        sequences_(static_cast<size_t>(copies_of(work))) {}

 protected:
  double run(int turn) override {
    kvc_seq& place = sequences_[static_cast<size_t>(turn) % sequences_.size()];
    if (place != 0) fixture_.remove({place});
    const std::vector<kvc_seq> fresh = fixture_.add(1);
    place = fresh[0];
    const int64_t elements = int64_t{work_.new_tokens} * work_.shape.kv_heads * work_.shape.head_dim;
    const auto bytes = static_cast<size_t>(elements * type_bits(work_.source_type()) / 8);
    const Type type = work_.source_type();
    Tensor k(type, work_.new_tokens, work_.shape.kv_heads, work_.shape.head_dim, arena_.next(bytes));
    Tensor v(type, work_.new_tokens, work_.shape.kv_heads, work_.shape.head_dim, arena_.next(bytes));
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = k.rows(work_.new_tokens);
    args.v = v.rows(work_.new_tokens);
    const kvc_forward forward = fixture_.begin(fresh, work_.new_tokens);
    kvc_error error = KVC_ERROR_INIT;
    const double begin = now();
    const kvc_status status = kvc_forward_append(fixture_.cache(), forward, 0, &args, &error);
    const double took = now() - begin;
    if (status != KVC_OK) throw std::runtime_error(error.message);
    fixture_.end(forward);
    return took;
  }
  int copies() const override { return static_cast<int>(sequences_.size()); }

 private:
  Fixture fixture_;
  std::vector<kvc_seq> sequences_;
};

// Each fork ends inside a page, and copies the tokens of this page before its end.
class PageCopy : public Subject {
 public:
  PageCopy(const Case& work, const Options& options, Team* team)
      : Subject(work, options, team),
        fixture_(work, options, int64_t{2} * copies_of(work) * work.batch, int64_t{2} * copies_of(work) * work.batch,
                 kMinBatchTokens),
        children_(static_cast<size_t>(copies_of(work))) {
    for (int c = 0; c < copies_of(work); ++c) {
      parents_.push_back(fixture_.add(work.batch));
      for (const kvc_seq parent : parents_.back()) fixture_.append({parent}, work.context);
    }
  }

 protected:
  double run(int turn) override {
    const size_t index = static_cast<size_t>(turn) % parents_.size();
    if (!children_[index].empty()) fixture_.remove(children_[index]);
    const double begin = now();
    children_[index] = fixture_.fork(parents_[index]);
    return now() - begin;
  }
  int copies() const override { return static_cast<int>(parents_.size()); }

 private:
  Fixture fixture_;
  std::vector<std::vector<kvc_seq>> parents_, children_;
};

// Each commit moves the second half of its trees to the place of the first half.
class Compaction : public Subject {
 public:
  Compaction(const Case& work, const Options& options, Team* team)
      : Subject(work, options, team),
        fixture_(work, options, copies_of(work) * work.batch * pages_of(work, work.context),
                 int64_t{copies_of(work)} * work.batch, std::max(kMinBatchTokens, work.new_tokens * work.batch)) {
    const int32_t half = work.new_tokens / 2;
    for (int32_t node = 0; node < work.new_tokens; ++node) {
      parents_.push_back(node <= half ? KVC_TREE_ROOT : node - 1);
    }
    for (int c = 0; c < copies_of(work); ++c) {
      batches_.push_back(fixture_.add(work.batch));
      fixture_.append(batches_.back(), prompt());
      fixture_.append_nodes(batches_.back(), parents_);
    }
  }

 protected:
  double run(int turn) override {
    const std::vector<kvc_seq>& batch = batches_[static_cast<size_t>(turn) % batches_.size()];
    const double begin = now();
    fixture_.commit(batch, work_.new_tokens - 1);
    const double took = now() - begin;
    fixture_.truncate(batch, prompt());  // the next run needs a new tree
    fixture_.append_nodes(batch, parents_);
    return took;
  }
  int copies() const override { return static_cast<int>(batches_.size()); }

 private:
  int32_t prompt() const { return work_.context - work_.new_tokens; }

  Fixture fixture_;
  std::vector<int32_t> parents_;
  std::vector<std::vector<kvc_seq>> batches_;
};

}  // namespace

Subject::Subject(const Case& work, const Options&, Team* team)
    : work_(work), arena_(static_cast<size_t>(kColdBytes + 2 * work.kv_bytes())), team_(team) {
  if (work.operations() > 0) instruction_ = &best_instruction(*team, work.type);
}

double Subject::ours() {
  const int turn = turn_++;
  if (!work_.cold) run(turn);
  return run(turn);
}

double Subject::stream() {
  const auto bytes = static_cast<size_t>(work_.kv_bytes());
  if (work_.cold) return read_stream(*team_, arena_.next(bytes), bytes);
  read_stream(*team_, arena_.data(), bytes);
  return read_stream(*team_, arena_.data(), bytes);
}

// Reads a copy that is half of all copies away from the one that our own work reads. So neither brings the other's data
// into the caches.
double Subject::read_pages_of(int turn) {
  const std::vector<int32_t> list = pages(turn + copies() / 2);
  if (list.empty()) return 0;
  if (!work_.cold) read_pages(*team_, pool(), page_bytes(), list);
  return read_pages(*team_, pool(), page_bytes(), list);
}

Sample Subject::sample() {
  constexpr double kRateSeconds = 2e-3;
  Sample result;
  const int turn = turn_;
  for (int part = 0; part < 5; ++part) {
    switch ((part + turn) % 5) {
      case 0:
        result.ours = ours();
        break;
      case 1:
        result.stream = stream();
        break;
      case 2:
        result.pages = read_pages_of(turn);
        break;
      case 3:
        if (instruction_ != nullptr) result.ops = work_.operations() / rate(*team_, *instruction_, kRateSeconds);
        break;
      default:
        if (work_.target.limit != Limit::kCopy) break;
        const auto bytes = static_cast<size_t>(work_.copied_bytes());
        char* target = arena_.next(bytes);
        result.copy = copy(*team_, target, arena_.next(bytes), bytes);
    }
  }
  return result;
}

std::unique_ptr<Subject> make_subject(const Case& work, const Options& options, Team* team) {
  switch (work.work) {
    case Work::kDecode:
    case Work::kSharedPrefix:
    case Work::kPrefill:
    case Work::kMlaDecode:
      return std::make_unique<Attend>(work, options, team);
    case Work::kAppend:
      return std::make_unique<Append>(work, options, team);
    case Work::kPageCopy:
      return std::make_unique<PageCopy>(work, options, team);
    case Work::kCompaction:
      return std::make_unique<Compaction>(work, options, team);
  }
  throw NotSupported("unknown work");
}

}  // namespace kvc::benchmark
