// Every mode of a plan, compared with a slow reference that follows the definitions of which query sees which token.
// Lengths are random around the edges of pages. Pages are shuffled, and unused entries are poison.
#include "server.h"

namespace kvt {
namespace {

// Tokens of a row: its own by position (branch 0), of drafts or nodes by branch and place, of its encoder.
constexpr int64_t kEncoder = 99;
int64_t token_id(int64_t row, int64_t branch, int64_t position) { return (row * 100 + branch) * 100000 + position; }

struct Mode : testing::TestWithParam<int> {
  ContextPtr context = make_context();
  std::mt19937 rng{7};
  int page = GetParam();
  // Of the trial.
  std::unique_ptr<Server> server;
  std::vector<int64_t> rows, before, fresh, encoder;  // rows[i] -1 = inert
  int64_t window = 0, chunk = 0;
  kvc_plan_config config;
  PlanPtr plan;

  int64_t below(int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); }
  int64_t length() {
    const int64_t edges[] = {0, 1, page - 1, page, page + 1, 3 * page - 1, 3 * page, 3 * page + 1, 2 + below(70)};
    return edges[below(9)];
  }

  // A batch of random rows with fresh[i] = new_tokens(), and a plan of random options.
  template <class NewTokens>
  void deal(int32_t mode, NewTokens new_tokens, bool with_encoder = false) {
    server = std::make_unique<Server>(6, (400 + 70 * 8) / page + 80, page, static_cast<uint32_t>(rng()));
    std::vector<int64_t> order{0, 1, 2, 3, 4, 5};
    std::shuffle(order.begin(), order.end(), rng);
    rows.assign(order.begin(), order.begin() + below(7));
    before.clear();
    fresh.clear();
    encoder.clear();
    for (int64_t &row : rows) {
      if (below(6) == 0) row = -1;
      before.push_back(length());
      fresh.push_back(new_tokens());
      encoder.push_back(with_encoder ? below(3) * below(40) : 0);
    }
    window = chunk = 0;
    if (below(3) == 0) {
      window = 1 + below(40);
    } else if (below(2) == 0) {
      chunk = 1 + below(40);
    }
    config = plan_config(mode, page);
    config.window_tokens = window;
    config.chunk_tokens = chunk;
    config.num_pool_pages = server->num_pages;
    if (below(3) == 0) config.flags |= KVC_PLAN_SLOTS;
    if (below(2) == 0) {
      config.flags |= KVC_PLAN_PAD_VALUE;
      config.pad_value = static_cast<int32_t>(below(1000)) - 500;
    }
  }
  // Stores the encoder tokens and the own tokens of every live row.
  void fill() {
    for (size_t i = 0; i < rows.size(); i++) {
      if (rows[i] < 0) continue;
      for (int64_t e = 0; e < encoder[i]; e++) put(i, e, token_id(rows[i], kEncoder, e));
      for (int64_t p = 0; p < before[i]; p++) put(i, encoder[i] + p, token_id(rows[i], 0, p));
    }
  }
  void put(size_t i, int64_t entry, int64_t token) { server->put(static_cast<int>(rows[i]), entry, token); }

  void build(const Ints *parents = nullptr, bool encoders = false) {
    plan = make_plan(context.get(), config);
    std::vector<int64_t> seq_lens = before;
    for (size_t i = 0; i < rows.size() && (config.flags & KVC_PLAN_LENGTHS_WITH_NEW); i++) seq_lens[i] += fresh[i];
    const Ints lens(seq_lens, below(2)), appends(fresh, below(2)), index(rows, below(2)), frames(encoder, below(2));
    const auto table = below(2) ? server->block_table() : nullptr;
    const auto slots = table ? nullptr : server->req_to_token();
    kvc_plan_args args;
    kvc_plan_args_init(&args);
    args.seq_lens = &lens.tensor;
    if (config.mode == KVC_PLAN_EXTEND) args.append_lengths = &appends.tensor;
    args.rows = &index.tensor;
    (table ? args.block_table : args.req_to_token) = table ? &table->tensor : &slots->tensor;
    if (encoders) args.encoder_lens = &frames.tensor;
    if (parents) args.tree_parents = &parents->tensor;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_plan_build(plan.get(), &args, nullptr, nullptr, &error), KVC_OK) << error.message;
  }

  bool sees(int64_t query, int64_t key) const {
    if (window > 0 && key <= query - window) return false;
    return chunk == 0 || key / chunk == query / chunk;
  }
  int64_t num_tokens() const { return std::accumulate(fresh.begin(), fresh.end(), int64_t{0}); }

  // Unused columns hold the padding.
  void check_padding(const kvc_tables &t) const {
    const int64_t pad = (config.flags & KVC_PLAN_PAD_VALUE) ? config.pad_value : -1;
    for (int64_t r = 0; r < t.num_rows; r++) {
      const int64_t used = (int_at(t.cache_seqlens, r) + t.page_size - 1) / t.page_size;
      for (int64_t c = used; c < t.max_pages; c++) ASSERT_EQ(int_at(t.block_table, r, c), pad) << r << ", " << c;
    }
  }
  // The parts of each query together have wanted[query], and nothing twice. Attention over them is that over wanted.
  void check_seen(const std::vector<kvc_tables> &parts, const std::vector<std::vector<int64_t>> &wanted) {
    const auto total = static_cast<int64_t>(wanted.size());
    std::vector<std::vector<Slots>> seen;
    for (const kvc_tables &t : parts) {
      const bool plain = t.part == KVC_TABLES_WHOLE;
      seen.push_back(read_tables(t, total, plain && chunk == 0 ? window : 0));
      check_padding(t);
    }
    const auto token_of = [&](int64_t slot) { return server->token(slot); };
    for (size_t q = 0; q < wanted.size(); q++) {
      std::vector<int64_t> tokens;
      State state;
      for (const auto &part : seen) {
        for (const int64_t slot : part[q]) tokens.push_back(token_of(slot));
        state = merge(state, attend(static_cast<int64_t>(q), part[q], token_of));
      }
      std::vector<int64_t> sorted = wanted[q];
      std::sort(sorted.begin(), sorted.end());
      std::sort(tokens.begin(), tokens.end());
      ASSERT_EQ(tokens, sorted) << "query " << q;
      const State dense = attend(static_cast<int64_t>(q), wanted[q], [](int64_t token) { return token; });
      EXPECT_NEAR(state.out, dense.out, 1e-12);
      if (!wanted[q].empty()) {
        EXPECT_NEAR(state.lse, dense.lse, 1e-12);
      }
    }
  }
  void check_tokens(const kvc_tables &t, const std::vector<int64_t> &slots, const std::vector<int64_t> &positions,
                    const std::vector<int64_t> &last) {
    EXPECT_EQ(ints(t.slot_mapping), slots);
    EXPECT_EQ(ints(t.positions), positions);
    EXPECT_EQ(ints(t.last_rows), last);
  }
};

// Prefill with and without a cached prefix, beside decoding and rows that add nothing; draft extend; encoders.
TEST_P(Mode, Extend) {
  for (int trial = 0; trial < 120; trial++) {
    const bool encoders = trial % 3 == 0;
    const bool decode = trial % 4 == 1;
    deal(
        decode ? KVC_PLAN_DECODE : KVC_PLAN_EXTEND, [&] { return decode     ? 1
                                                                 : below(3) ? below(2 * page + 4)
                                                                            : 1; },
        encoders);
    if (below(2)) config.flags |= KVC_PLAN_LENGTHS_WITH_NEW;
    fill();
    std::vector<std::vector<int64_t>> wanted, frames;
    std::vector<int64_t> slots, positions, last;
    for (size_t i = 0; i < rows.size(); i++) {
      for (int64_t q = before[i]; q < before[i] + fresh[i]; q++) {
        wanted.emplace_back();
        frames.emplace_back();
        slots.push_back(-1);
        positions.push_back(0);
        if (rows[i] < 0) continue;
        put(i, encoder[i] + q, token_id(rows[i], 0, q));
        slots.back() = server->slot(static_cast<int>(rows[i]), encoder[i] + q);
        positions.back() = q;
        for (int64_t k = 0; k <= q; k++) {
          if (sees(q, k)) wanted.back().push_back(token_id(rows[i], 0, k));
        }
        for (int64_t e = 0; e < encoder[i]; e++) frames.back().push_back(token_id(rows[i], kEncoder, e));
      }
      last.push_back(fresh[i] ? static_cast<int64_t>(slots.size()) - 1 : -1);
    }
    build(nullptr, encoders);
    if (HasFatalFailure()) return;
    const kvc_tables whole = tables_of(plan.get(), KVC_TABLES_WHOLE);
    check_seen({whole}, wanted);
    check_tokens(whole, slots, positions, last);
    if (encoders) check_seen({tables_of(plan.get(), KVC_TABLES_ENCODER)}, frames);
    if (HasFailure()) FAIL() << "trial " << trial << " window " << window << " chunk " << chunk;
  }
}

TEST_P(Mode, Verify) {
  for (int trial = 0; trial < 120; trial++) {
    const int64_t n = 1 + below(9);
    const bool tree = trial % 3 != 0;
    deal(KVC_PLAN_VERIFY, [&] { return n; });
    config.num_draft_tokens = static_cast<int32_t>(n);
    if (below(2)) config.flags |= KVC_PLAN_LENGTHS_WITH_NEW;
    fill();
    std::vector<std::vector<int64_t>> wanted;
    std::vector<int64_t> parents, slots, positions;
    for (size_t i = 0; i < rows.size(); i++) {
      std::vector<int64_t> depth, parent;
      for (int64_t k = 0; k < n; k++) {
        parent.push_back(tree ? below(k + 1) - 1 : k - 1);
        depth.push_back(parent.back() < 0 ? 0 : depth[static_cast<size_t>(parent.back())] + 1);
        if (rows[i] >= 0) put(i, before[i] + k, token_id(rows[i], 1, k));
        slots.push_back(rows[i] < 0 ? -1 : server->slot(static_cast<int>(rows[i]), before[i] + k));
        positions.push_back(rows[i] < 0 ? 0 : before[i] + depth.back());
        wanted.emplace_back();
        if (rows[i] < 0) continue;
        for (int64_t j = 0; j < before[i]; j++) {
          if (sees(positions.back(), j)) wanted.back().push_back(token_id(rows[i], 0, j));
        }
        for (int64_t a = k; a >= 0; a = parent[static_cast<size_t>(a)]) {
          const int64_t at = before[i] + depth[static_cast<size_t>(a)];
          if (sees(positions.back(), at)) wanted.back().push_back(token_id(rows[i], 1, a));
        }
      }
      parents.insert(parents.end(), parent.begin(), parent.end());
    }
    const Ints parent_array(parents);
    build(tree ? &parent_array : nullptr);
    if (HasFatalFailure()) return;
    std::vector<kvc_tables> parts;
    if (tree) {
      parts = {tables_of(plan.get(), KVC_TABLES_PREFIX), tables_of(plan.get(), KVC_TABLES_BRANCHES)};
    } else {
      parts = {tables_of(plan.get(), KVC_TABLES_WHOLE)};
    }
    check_seen(parts, wanted);
    std::vector<int64_t> last;
    for (size_t i = 0; i < rows.size(); i++) last.push_back(static_cast<int64_t>(i + 1) * n - 1);
    for (const kvc_tables &t : parts) check_tokens(t, slots, positions, last);
    if (HasFailure()) FAIL() << "trial " << trial << " n " << n << " window " << window << " chunk " << chunk;
  }
}

// All steps of a draft in one build, with 1 to 4 branches.
TEST_P(Mode, DraftDecode) {
  for (int trial = 0; trial < 120; trial++) {
    const int64_t steps = 1 + below(6), branches = 1 + below(4);
    deal(KVC_PLAN_DRAFT_DECODE, [&] { return branches; });
    config.num_steps = static_cast<int32_t>(steps);
    config.top_k = static_cast<int32_t>(branches);
    fill();
    // The slots of drafts: after the prefix, or, with branches, each branch after its own copy of the partial last
    // page.
    const auto place = [&](size_t i, int64_t branch, int64_t step) {
      if (branches == 1) return before[i] + step;
      const int64_t tail = before[i] % page, region = (tail + steps + page - 1) / page * page;
      return before[i] - tail + branch * region + tail + step;
    };
    for (size_t i = 0; i < rows.size(); i++) {
      for (int64_t b = 0; b < branches && rows[i] >= 0; b++) {
        const int64_t tail = branches > 1 ? before[i] % page : 0;
        for (int64_t p = before[i] - tail; p < before[i]; p++) {
          put(i, place(i, b, 0) - before[i] + p, token_id(rows[i], 0, p));
        }
        for (int64_t s = 0; s < steps; s++) put(i, place(i, b, s), token_id(rows[i], 1 + b, before[i] + s));
      }
    }
    build();
    if (HasFatalFailure()) return;
    for (int64_t s = 0; s < steps; s++) {
      std::vector<std::vector<int64_t>> wanted;
      std::vector<int64_t> slots, positions, last;
      for (size_t i = 0; i < rows.size(); i++) {
        for (int64_t b = 0; b < branches; b++) {
          wanted.emplace_back();
          slots.push_back(rows[i] < 0 ? -1 : server->slot(static_cast<int>(rows[i]), place(i, b, s)));
          positions.push_back(rows[i] < 0 ? 0 : before[i] + s);
          if (rows[i] < 0) continue;
          for (int64_t p = 0; p <= before[i] + s; p++) {
            if (sees(before[i] + s, p)) wanted.back().push_back(token_id(rows[i], p < before[i] ? 0 : 1 + b, p));
          }
        }
        last.push_back(static_cast<int64_t>(slots.size()) - 1);
      }
      std::vector<kvc_tables> parts;
      if (branches > 1) {
        parts = {tables_of(plan.get(), KVC_TABLES_PREFIX, static_cast<int32_t>(s)),
                 tables_of(plan.get(), KVC_TABLES_BRANCHES, static_cast<int32_t>(s))};
      } else {
        parts = {tables_of(plan.get(), KVC_TABLES_WHOLE, static_cast<int32_t>(s))};
      }
      check_seen(parts, wanted);
      for (const kvc_tables &t : parts) check_tokens(t, slots, positions, last);
      if (HasFailure()) FAIL() << "trial " << trial << " step " << s << " of " << steps << ", top_k " << branches;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pages, Mode, testing::Values(1, 3, 16, 64));

}  // namespace
}  // namespace kvt
