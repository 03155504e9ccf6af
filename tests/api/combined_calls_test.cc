// Every kind of layer with every call, tensor and option that does not belong to it, and batches with every part that a
// batch may have. Misuse is refused, changes nothing and writes nothing. What belongs together is accepted.
#include <algorithm>
#include <cmath>

#include "fixture.h"
#include "hybrid.h"

namespace kvt {
namespace {

// A cache with a group of every kind. Its sequences have 9 tokens, and the first one has an encoder sequence of 5
// tokens in the cross group.
struct Calls {
  Hybrid h;
  ContextPtr context = make_context(2);
  CachePtr owner;
  kvc_cache *cache = nullptr;
  kvc_seq seqs[3] = {};
  kvc_error error = KVC_ERROR_INIT;

  Calls() {
    EXPECT_EQ(kvc_cache_create(context.get(), &h.config, &cache, &error), KVC_OK) << error.message;
    owner.reset(cache);
    EXPECT_EQ(kvc_seq_add(cache, 3, seqs, &error), KVC_OK);
    kvc_forward f = begin({seqs[0]}, {5}, kCrossGroup + 1);
    run(f, kCrossGroup, 5);
    EXPECT_EQ(kvc_forward_end(cache, f, &error), KVC_OK) << error.message;
    f = begin({seqs[0], seqs[1]}, {9, 9}, 0);
    for (int i = 0; i <= kKinds; i++) run(f, i, 18);
    EXPECT_EQ(kvc_forward_end(cache, f, &error), KVC_OK) << error.message;
  }
  kvc_forward begin(const std::vector<kvc_seq> &ids, const std::vector<int32_t> &lengths, int32_t encoder) {
    kvc_batch batch = batch_of(ids, lengths, 0);
    batch.encoder_group = encoder;
    kvc_forward f = 0;
    EXPECT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, &error), KVC_OK) << error.message;
    return f;
  }
  // Makes all calls that the layers need before the end of a step.
  void run(kvc_forward f, int layer, int64_t tokens) {
    if (layer == kRecurrentGroup) {
      Tensor state(DType::kF32, {6, 5});
      for (int i = 0; i < 2; i++) {
        EXPECT_EQ(kvc_forward_store_state(cache, f, layer, i, -1, state.dl(), &error), KVC_OK) << error.message;
      }
      return;
    }
    if (layer == kSharing) return;
    Tensor k(DType::kF32, {tokens, kv_heads(layer), kDim});
    std::fill(k.bytes().begin(), k.bytes().end(), uint8_t{0});
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = k.dl();
    args.v = layer == kMlaGroup ? nullptr : k.dl();
    const kvc_status status = kvc_forward_append(cache, f, layer, &args, &error);
    EXPECT_EQ(status, layer == kCrossGroup && encoder_free(f) ? KVC_ERROR_INVALID_ARGUMENT : KVC_OK) << error.message;
  }
  bool encoder_free(kvc_forward f) {  // a forward of the sequences' own tokens
    kvc_forward_info info;
    kvc_forward_info_init(&info);
    return kvc_forward_get_info(cache, f, &info, nullptr) == KVC_OK && info.num_tokens != 5;
  }
  static int64_t kv_heads(int layer) { return layer == kMlaGroup ? 1 : kKvHeads; }
};

// Copies of a tensor, each with one fault. All memory that the original reaches stays readable.
struct Spoiled {
  const char *what;
  DLTensor tensor;
  int64_t shape[5], strides[5];
};

void spoil(const DLTensor &good, bool strides_matter, std::vector<std::unique_ptr<Spoiled>> *out) {
  const auto add = [&](const char *what, const std::function<void(Spoiled *)> &change) {
    auto bad = std::make_unique<Spoiled>();
    bad->what = what;
    bad->tensor = good;
    for (int i = 0; i < good.ndim; i++) bad->shape[i] = good.shape[i], bad->strides[i] = good.strides[i];
    bad->tensor.shape = bad->shape;
    bad->tensor.strides = bad->strides;
    change(bad.get());
    out->push_back(std::move(bad));
  };
  const int last = good.ndim - 1;
  add("dtype", [](Spoiled *s) { s->tensor.dtype = {kDLInt, 32, 1}; });
  add("lanes", [](Spoiled *s) { s->tensor.dtype.lanes = 2; });
  add("float64", [](Spoiled *s) { s->tensor.dtype.bits = 64; });
  add("device", [](Spoiled *s) { s->tensor.device = {kDLMetal, 0}; });
  add("no rank", [](Spoiled *s) { s->tensor.ndim = 0; });
  add("negative rank", [](Spoiled *s) { s->tensor.ndim = -1; });
  add("huge rank", [](Spoiled *s) { s->tensor.ndim = INT32_MAX; });
  add("one dim less", [](Spoiled *s) { s->tensor.ndim--; });
  add("no shape", [](Spoiled *s) { s->tensor.shape = nullptr; });
  add("no data", [](Spoiled *s) { s->tensor.data = nullptr; });
  add("few tokens", [](Spoiled *s) { s->shape[0]--; });
  add("negative tokens", [](Spoiled *s) { s->shape[0] = -1; });
  add("more dims", [last](Spoiled *s) { s->shape[last]++; });
  add("INT64_MAX dims", [last](Spoiled *s) { s->shape[last] = INT64_MAX; });
  if (good.ndim > 2) add("more heads", [](Spoiled *s) { s->shape[1] *= 2; });
  add("odd address", [](Spoiled *s) { s->tensor.byte_offset += 1; });
  add("byte_offset", [](Spoiled *s) { s->tensor.byte_offset = UINT64_MAX; });
  if (!strides_matter) return;
  add("innermost stride 2", [last](Spoiled *s) { s->strides[last] = 2; });
  add("negative stride", [](Spoiled *s) { s->strides[0] = -s->strides[0]; });
  add("INT64_MAX stride", [](Spoiled *s) { s->strides[0] = INT64_MAX; });
}

struct Call {
  const char *function;
  std::function<kvc_status(kvc_error *)> run;
};

// Expects a refusal for misuse or for the order of calls. The digest and the memory of the outputs stay as they were.
void expect_refused(kvc_cache *cache, const Call &call, Tensor *written) {
  const std::vector<uint8_t> before = written->bytes();
  kvc_error error = KVC_ERROR_INIT;
  const kvc_status status = call.run(&error);
  if (status == KVC_OK) {
    ADD_FAILURE() << call.function << " was not refused";
    return;
  }
  EXPECT_TRUE(status < 100 || status == KVC_ERROR_ORDER) << kvc_status_name(status) << " " << error.message;
  refused(cache, {status}, call.function, call.run);
  EXPECT_EQ(written->bytes(), before) << call.function << " wrote: " << error.message;
}

constexpr int64_t kTokens = 6;

// The calls of attend that a layer accepts, with all their tensors: in latent space, and with up-projections.
struct AttendCalls {
  bool mla, stores;
  Tensor q{DType::kF32, {kTokens, kHeads, kDim}}, out, lse{DType::kF32, {kTokens, kHeads}}, k,
      slopes{DType::kF32, {kHeads}}, w{DType::kF32, {kHeads, 3, kLatent}}, out_w{DType::kF32, {kTokens, kHeads, 3}},
      q_w{DType::kF32, {kTokens, kHeads, 3 + kDim - kLatent}};
  kvc_attend_args good, projected;

  explicit AttendCalls(int layer)
      : mla(layer == kMlaGroup),
        stores(layer != kCrossGroup && layer != kSharing),
        out(DType::kF32, {kTokens, kHeads, mla ? kLatent : kDim}),
        k(DType::kF32, {kTokens, Calls::kv_heads(layer), kDim}) {
    kvc_attend_args_init(&good);
    good.q = q.dl();
    good.out = out.dl();
    good.lse = lse.dl();
    good.alibi_slopes = good.sinks = slopes.dl();
    if (stores) good.k = k.dl();
    if (stores && !mla) good.v = k.dl();
    projected = good;
    projected.q = q_w.dl();
    projected.out = out_w.dl();
    projected.w_uk = projected.w_uv = w.dl();
  }
  AttendCalls(const AttendCalls &) = delete;
  AttendCalls &operator=(const AttendCalls &) = delete;
};

// append and attend of a layer, with each fault in each tensor.
TEST(CombinedCalls, EveryTensorOfEveryKindOfLayerSpoiled) {
  Calls c;
  const kvc_forward f = c.begin({c.seqs[0], c.seqs[2]}, {2, 4}, 0);
  int checked = 0;
  for (const int layer : {0, 1, 2, 3, 4, kSharing}) {
    AttendCalls calls(layer);
    using Field = const DLTensor *kvc_attend_args::*;
    const std::pair<const char *, Field> fields[] = {
        {"q", &kvc_attend_args::q},         {"k", &kvc_attend_args::k},
        {"v", &kvc_attend_args::v},         {"out", &kvc_attend_args::out},
        {"lse", &kvc_attend_args::lse},     {"alibi_slopes", &kvc_attend_args::alibi_slopes},
        {"sinks", &kvc_attend_args::sinks}, {"w_uk", &kvc_attend_args::w_uk},
        {"w_uv", &kvc_attend_args::w_uv}};
    for (const auto &[name, field] : fields) {
      const bool up = field == &kvc_attend_args::w_uk || field == &kvc_attend_args::w_uv;
      if (up && !calls.mla) continue;
      const kvc_attend_args &base = up ? calls.projected : calls.good;
      if (base.*field == nullptr) continue;
      std::vector<std::unique_ptr<Spoiled>> bad;
      const bool is_lse = field == &kvc_attend_args::lse;
      spoil(*(base.*field), !is_lse, &bad);
      for (const auto &spoiled : bad) {
        SCOPED_TRACE(std::string(name) + ": " + spoiled->what + ", layer " + std::to_string(layer));
        // Up-projections may have other dims. Then another tensor is the one that does not fit.
        kvc_attend_args args = base;
        args.*field = &spoiled->tensor;
        expect_refused(
            c.cache,
            {"kvc_forward_attend", [&](kvc_error *e) { return kvc_forward_attend(c.cache, f, layer, &args, e); }},
            up ? &calls.out_w : &calls.out);
        checked++;
        if (field != &kvc_attend_args::k && field != &kvc_attend_args::v) continue;
        kvc_append_args append;
        kvc_append_args_init(&append);
        append.k = args.k;
        append.v = args.v;
        expect_refused(
            c.cache,
            {"kvc_forward_append", [&](kvc_error *e) { return kvc_forward_append(c.cache, f, layer, &append, e); }},
            &calls.out);
      }
    }
  }
  for (const auto &call : {&kvc_forward_load_state, &kvc_forward_store_state}) {
    Tensor state(DType::kF32, {2, 5});
    std::vector<std::unique_ptr<Spoiled>> bad;
    spoil(*state.dl(), true, &bad);
    for (const auto &spoiled : bad) {
      SCOPED_TRACE(std::string("state: ") + spoiled->what);
      const char *name = call == &kvc_forward_load_state ? "kvc_forward_load_state" : "kvc_forward_store_state";
      expect_refused(
          c.cache, {name, [&](kvc_error *e) { return call(c.cache, f, kRecurrentGroup, 0, -1, &spoiled->tensor, e); }},
          &state);
      checked++;
    }
  }
  EXPECT_GT(checked, 500);
  for (int i = 0; i <= kKinds; i++) c.run(f, i, kTokens);
  EXPECT_EQ(kvc_forward_end(c.cache, f, &c.error), KVC_OK) << "after all that: " << c.error.message;
}

// The options and calls of each kind, in every other kind.
TEST(CombinedCalls, EveryOptionInEveryKindOfLayer) {
  Calls c;
  const kvc_forward f = c.begin({c.seqs[0], c.seqs[2]}, {2, 4}, 0);
  Tensor q(DType::kF32, {kTokens, kHeads, kDim}), out(DType::kF32, {kTokens, kHeads, kDim}),
      latent_out(DType::kF32, {kTokens, kHeads, kLatent}), table(DType::kF32, {kTokens, 2, kDim / 2}),
      k(DType::kF32, {kTokens, kKvHeads, kDim}), row(DType::kF32, {kTokens, 1, kDim}),
      w(DType::kF32, {kHeads, 3, kLatent});
  struct Option {
    const char *what;
    std::function<void(kvc_attend_args *)> set;
  };
  const std::vector<Option> options = {
      {"past and self", [](kvc_attend_args *a) { a->flags = KVC_ATTEND_PAST | KVC_ATTEND_SELF; }},
      {"unknown flag", [](kvc_attend_args *a) { a->flags = 1u << 20; }},
      {"self without its append", [](kvc_attend_args *a) { a->flags = KVC_ATTEND_SELF; }},
      {"k alone", [&](kvc_attend_args *a) { a->k = k.dl(), a->v = nullptr; }},
      {"v alone", [&](kvc_attend_args *a) { a->v = k.dl(), a->k = nullptr; }},
      {"a table of angles", [&](kvc_attend_args *a) { a->rope_cos_sin = table.dl(); }},
      {"w_uk alone", [&](kvc_attend_args *a) { a->w_uk = w.dl(); }},
      {"w_uv alone", [&](kvc_attend_args *a) { a->w_uv = w.dl(); }},
      {"up-projections, and q in latent space", [&](kvc_attend_args *a) { a->w_uk = a->w_uv = w.dl(); }},
      {"negative softcap", [](kvc_attend_args *a) { a->softcap = -1; }},
      {"NaN for a scale", [](kvc_attend_args *a) { a->softmax_scale = NAN; }},
      {"out is q", [&](kvc_attend_args *a) { a->out = a->q; }},
      {"lse is q", [&](kvc_attend_args *a) { a->lse = a->q; }},
  };
  for (const int layer : {0, 1, 2, 3, 4, 5, kSharing}) {
    for (const Option &option : options) {
      SCOPED_TRACE(std::string(option.what) + ", layer " + std::to_string(layer));
      kvc_attend_args args;
      kvc_attend_args_init(&args);
      args.q = q.dl();
      Tensor &target = layer == kMlaGroup ? latent_out : out;
      args.out = target.dl();
      option.set(&args);
      // Without k and v, layers that store are refused for the order of calls. With k and v, they are refused for the
      // fault.
      if (layer < kCrossGroup && args.k == nullptr && args.v == nullptr && args.flags == 0) {
        args.k = layer == kMlaGroup ? row.dl() : k.dl();
        args.v = layer == kMlaGroup ? nullptr : k.dl();
      }
      if (layer == kMlaGroup && args.out == args.q) continue;  // it is refused for its shape
      expect_refused(
          c.cache,
          {"kvc_forward_attend", [&](kvc_error *e) { return kvc_forward_attend(c.cache, f, layer, &args, e); }},
          &target);
    }
  }
}

TEST(CombinedCalls, RowsAndStatesOfAnotherKind) {
  Calls c;
  const kvc_forward f = c.begin({c.seqs[0], c.seqs[2]}, {2, 4}, 0);
  Tensor out(DType::kF32, {kTokens, kHeads, kDim}), k(DType::kF32, {kTokens, kKvHeads, kDim}),
      row(DType::kF32, {kTokens, 1, kDim}), part(DType::kF32, {kTokens, 1, kLatent}), state(DType::kF32, {2, 5}),
      scales(DType::kF32, {kTokens, kKvHeads});
  for (const int layer : {0, 1, 2, 3, 4, 5, kSharing}) {
    for (const bool parts : {false, true}) {  // rows of another kind of layer
      kvc_append_args append;
      kvc_append_args_init(&append);
      append.k = layer == kMlaGroup ? (parts ? k.dl() : row.dl()) : row.dl();
      append.v = layer == kMlaGroup ? part.dl() : parts ? nullptr : row.dl();
      SCOPED_TRACE("rows of another kind, layer " + std::to_string(layer));
      expect_refused(
          c.cache,
          {"kvc_forward_append", [&](kvc_error *e) { return kvc_forward_append(c.cache, f, layer, &append, e); }},
          &out);
    }
    kvc_append_args scaled;
    kvc_append_args_init(&scaled);
    scaled.k = layer == kMlaGroup ? row.dl() : k.dl();
    scaled.v = layer == kMlaGroup ? nullptr : k.dl();
    scaled.k_scale = scaled.v_scale = scales.dl();
    expect_refused(
        c.cache,
        {"kvc_forward_append", [&](kvc_error *e) { return kvc_forward_append(c.cache, f, layer, &scaled, e); }}, &out);
    if (layer == kRecurrentGroup) continue;
    for (const int index : {-1, 0, 1, 2, INT32_MAX}) {
      expect_refused(
          c.cache,
          {"kvc_forward_load_state",
           [&](kvc_error *e) { return kvc_forward_load_state(c.cache, f, layer, index, -1, state.dl(), e); }},
          &state);
    }
  }
  for (const int index : {-1, 2, 17, INT32_MAX, INT32_MIN}) {
    expect_refused(
        c.cache,
        {"kvc_forward_store_state",
         [&](kvc_error *e) { return kvc_forward_store_state(c.cache, f, kRecurrentGroup, index, -1, state.dl(), e); }},
        &state);
  }
}

// ---- Batches -------------------------------------------------------------------------------------

enum class Tree { kNone, kChain, kBranch, kForward, kSelf, kBelow, kHalf };
enum class Span { kNone, kZeros, kImage, kNegative };

// Trees, spans, encoder groups, rows and layer ranges in every combination. begin returns what the header says, can_fit
// returns the same, and an abort restores the digest.
TEST(CombinedCalls, EveryBatch) {
  Calls c;
  int accepted = 0, turned_down = 0;
  const int encoders[] = {0, 1 + kCrossGroup, 1 + kFullGroup, 1 + kRecurrentGroup, 1 + kKinds, -1};
  for (const int encoder : encoders) {
    for (int tree = 0; tree <= static_cast<int>(Tree::kHalf); tree++) {
      for (int span = 0; span <= static_cast<int>(Span::kNegative); span++) {
        for (int row = 0; row < 5; row++) {
          for (const int layers : {0, 1, 2}) {
            const auto shape = static_cast<Tree>(tree);
            const auto spans = static_cast<Span>(span);
            std::vector<int32_t> parents = {-2, -1, 0, 1}, ids = {0, 0, 0, 0}, lengths = {1, 3};
            std::vector<kvc_seq> seqs = {c.seqs[1], c.seqs[0]};
            if (shape == Tree::kBranch) parents[3] = 0;
            if (shape == Tree::kForward) parents[2] = 2;
            if (shape == Tree::kSelf) parents[2] = 1;
            if (shape == Tree::kBelow) parents[2] = -3;
            if (shape == Tree::kHalf) parents[3] = KVC_TREE_NONE;
            if (spans == Span::kImage) ids[2] = ids[3] = 5;
            if (spans == Span::kNegative) ids[2] = -1;
            if (row == 1) seqs[1] = 0;
            if (row == 2) seqs[1] = seqs[0];
            if (row == 3) seqs[1] = ~seqs[0];
            if (row == 4) lengths[0] = 0;
            const bool inert = row == 1, with_tree = shape != Tree::kNone, cross = encoder != 0;
            // A tree over recurrent states must be a chain, whatever layers the step has.
            const bool bad_tree = with_tree && shape != Tree::kChain && !inert;
            const bool bad_span = !inert && (spans == Span::kNegative || (spans == Span::kImage && with_tree));
            const bool bad_encoder = encoder != 0 && encoder != 1 + kCrossGroup;
            const bool bad_mix = cross && (with_tree || spans != Span::kNone);
            const bool bad = bad_tree || bad_span || bad_encoder || bad_mix || row >= 2 || layers == 2;
            kvc_batch batch = batch_of(seqs, lengths, 0);
            batch.encoder_group = encoder;
            batch.tree_parents = with_tree ? parents.data() : nullptr;
            batch.span_ids = spans != Span::kNone ? ids.data() : nullptr;
            if (layers > 0) batch.layer_begin = layers == 1 ? 2 : 5, batch.layer_end = layers == 1 ? 6 : 5;
            SCOPED_TRACE("encoder " + std::to_string(encoder) + " tree " + std::to_string(tree) + " spans " +
                         std::to_string(span) + " row " + std::to_string(row) + " layers " + std::to_string(layers));
            uint64_t before = 0, after = 0;
            ASSERT_EQ(kvc_cache_digest(c.cache, &before, nullptr), KVC_OK);
            kvc_error fits = KVC_ERROR_INIT, error = KVC_ERROR_INIT;
            kvc_forward f = 0;
            const kvc_status would = kvc_cache_can_fit(c.cache, &batch, &fits);
            const kvc_status status = kvc_forward_begin(c.cache, &batch, nullptr, &f, &error);
            ASSERT_EQ(status, would) << error.message << fits.message;
            ASSERT_EQ(status != KVC_OK, bad) << error.message;
            if (bad) {
              turned_down++;
              ASSERT_LT(status, 100) << error.message;
              ASSERT_EQ(std::string(error.message).rfind("kvc_forward_begin:", 0), 0u);
              ASSERT_EQ(error.index, fits.index);
            } else {
              accepted++;
              ASSERT_EQ(kvc_forward_abort(c.cache, f, nullptr), KVC_OK);
            }
            ASSERT_EQ(kvc_cache_digest(c.cache, &after, nullptr), KVC_OK);
            ASSERT_EQ(before, after);
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 20);
  EXPECT_GT(turned_down, 500);
}

// Every call on a sequence that is busy, has a tree, streams, or was removed.
TEST(CombinedCalls, EveryCallInEveryStateOfASequence) {
  Calls c;
  const int64_t window[2] = {5, 5}, sinks[2] = {1, 5};
  refused(c.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_seq_set_streaming",
          [&](kvc_error *e) { return kvc_seq_set_streaming(c.cache, 2, c.seqs, sinks, window, 0, e); }, {"5"});
  // A tree over recurrent states that is stored and uncommitted.
  const int32_t chain[2] = {-1, 0};
  kvc_batch batch = batch_of({c.seqs[1]}, {2}, 0);
  const std::vector<kvc_seq> one = {c.seqs[1]};
  const std::vector<int32_t> two = {2};
  batch.sequences = one.data();
  batch.append_lengths = two.data();
  batch.tree_parents = chain;
  kvc_forward f = 0;
  ASSERT_EQ(kvc_forward_begin(c.cache, &batch, nullptr, &f, &c.error), KVC_OK) << c.error.message;
  for (int i = 0; i <= kKinds; i++) c.run(f, i, 2);
  ASSERT_EQ(kvc_forward_end(c.cache, f, &c.error), KVC_OK) << c.error.message;
  const kvc_forward open = c.begin({c.seqs[0]}, {1}, 0);
  const kvc_seq removed = c.seqs[2], wild = 0x7fffffffffffffff;
  ASSERT_EQ(kvc_seq_remove(c.cache, 1, &removed, nullptr), KVC_OK);
  const struct {
    const char *what;
    kvc_seq seq;
    kvc_status status;
  } states[] = {{"busy", c.seqs[0], KVC_ERROR_BUSY},      {"with a tree", c.seqs[1], KVC_ERROR_UNCOMMITTED},
                {"removed", removed, KVC_ERROR_STALE_ID}, {"a forward", open, KVC_ERROR_STALE_ID},
                {"none", 0, KVC_ERROR_STALE_ID},          {"no id at all", wild, KVC_ERROR_STALE_ID}};
  for (const auto &state : states) {
    SCOPED_TRACE(state.what);
    const kvc_seq seq = state.seq;
    const int64_t zero = 0, length = 9;
    const int32_t leaf = 0, n = 1;
    kvc_seq child = 0;
    const bool tree = state.status == KVC_ERROR_UNCOMMITTED;
    refused(c.cache, {state.status}, "kvc_seq_fork",
            [&](kvc_error *e) { return kvc_seq_fork(c.cache, 1, &seq, &zero, &child, nullptr, e); });
    refused(c.cache, {state.status}, "kvc_seq_checkpoint",
            [&](kvc_error *e) { return kvc_seq_checkpoint(c.cache, 1, &seq, e); });
    refused(c.cache, {state.status}, "kvc_seq_set_streaming",
            [&](kvc_error *e) { return kvc_seq_set_streaming(c.cache, 1, &seq, sinks, &length, 0, e); });
    refused(c.cache, {tree ? KVC_ERROR_EVICTED : state.status}, "kvc_seq_commit",
            [&](kvc_error *e) { return kvc_seq_commit(c.cache, 1, &seq, &leaf, nullptr, e); });
    refused(c.cache, {tree ? KVC_ERROR_OUT_OF_RANGE : state.status}, "kvc_seq_truncate", [&](kvc_error *e) {
      const int64_t beyond = 10;
      return kvc_seq_truncate(c.cache, 1, &seq, &beyond, e);
    });
    kvc_batch plain;
    kvc_batch_init(&plain);
    plain.sequences = &seq;
    plain.append_lengths = &n;
    plain.num_sequences = 1;
    kvc_forward next = 0;
    if (seq != 0) {
      refused(c.cache, {state.status}, "kvc_forward_begin",
              [&](kvc_error *e) { return kvc_forward_begin(c.cache, &plain, nullptr, &next, e); });
    }
    kvc_export_args exports;
    kvc_export_args_init(&exports);
    for (int layer = -1; layer <= kKinds + 1; layer++) {
      exports.layer = layer;
      exports.position_begin = 100;
      kvc_exported exported;
      kvc_exported_init(&exported);
      kvc_error error = KVC_ERROR_INIT;
      EXPECT_NE(kvc_seq_export(c.cache, seq, &exports, &exported, nullptr, &error), KVC_OK);
      EXPECT_LT(error.code, 300) << error.message;
      EXPECT_EQ(exported.k, nullptr);
    }
  }
}

}  // namespace
}  // namespace kvt
