#include "flash_call.h"

#include <cmath>
#include <set>
#include <sstream>

#include "reference.h"

namespace kvt {
namespace {

// The products and the sum are each rounded to float32, as the library documents it.
float rounded_difference(float a, float b, float c, float d) {
  volatile float left = a * b, right = c * d;
  volatile float result = left - right;
  return result;
}
float rounded_sum(float a, float b, float c, float d) {
  volatile float left = a * b, right = c * d;
  volatile float result = left + right;
  return result;
}

float rounded_quotient(float x, float scale) {
  volatile float quotient = x / scale;
  return quotient;
}

}  // namespace

std::string describe(const FlashSetting &s) {
  std::ostringstream text;
  text << "q " << name_of(s.q) << " kv " << name_of(s.kv) << " new " << name_of(s.fresh) << " out " << name_of(s.out)
       << " rows " << s.rows << " heads " << s.hq << "/" << s.hkv << " dims " << s.d << "/" << s.dv << " lengths "
       << s.sq << "/" << s.sk << " ragged " << s.ragged_q << " page " << s.page << " hnd " << s.hnd << " flags "
       << s.flags << " window " << s.window_left << "," << s.window_right << " chunk " << s.chunk << " softcap "
       << s.softcap << " alibi " << s.alibi << " sinks " << s.sinks << " descale " << s.descale << " pad "
       << static_cast<int>(s.pad) << " which " << static_cast<int>(s.which) << " append " << static_cast<int>(s.append)
       << " rotary " << s.rotary_dim << " splits " << s.splits << " qv " << static_cast<int>(s.qv) << " scalar "
       << s.scalar_lengths << " seed " << s.seed;
  return text.str();
}

FlashCall::FlashCall(const FlashSetting &s) : setting(s) {
  std::mt19937 random(s.seed);
  make_lengths(&random);
  make_cache(&random);
  make_tokens(&random);
}

void FlashCall::make_lengths(std::mt19937 *random) {
  const FlashSetting &s = setting;
  cu_q.values = cu_new.values = {0};
  std::vector<int32_t> cached;
  for (int r = 0; r < s.rows; r++) {
    int queries = s.sq, fresh = 0;
    if (s.ragged_q) queries = r == 1 ? 0 : 1 + static_cast<int>((*random)() % static_cast<unsigned>(s.sq));
    if (s.append == New::kEqual) fresh = s.sq;
    if (s.append == New::kShorter) fresh = std::max(1, s.sq / 2);
    if (s.append == New::kLonger) fresh = s.sq + 5;
    if (s.append == New::kRagged) fresh = static_cast<int>((*random)() % static_cast<unsigned>(s.sq + 3));
    int length = r == 0 ? s.sk : 1 + static_cast<int>((*random)() % static_cast<unsigned>(s.sk));
    if (s.scalar_lengths && r > 0) length = cached[0] + fresh;
    cached.push_back(std::max(0, length - fresh));
    cu_q.values.push_back(cu_q.values.back() + queries);
    cu_new.values.push_back(cu_new.values.back() + fresh);
  }
  if (s.scalar_lengths) cached.resize(1);
  lengths = Indexes<>(cached, s.scalar_lengths ? Index{} : Index{s.rows});
  if (s.scalar_lengths) lengths.shape.clear();
  cu_q.shape = cu_new.shape = {s.rows + 1};
  for (int r = 0; r < s.rows && s.pad == Pad::kLeft; r++) {
    pads.values.push_back(static_cast<int32_t>((*random)() % static_cast<unsigned>(this->cached(r) / 3 + 1)));
  }
  pads.shape = {static_cast<int64_t>(pads.values.size())};
  std::vector<int32_t> all(static_cast<size_t>(s.rows) + 2);
  std::iota(all.begin(), all.end(), 0);
  if (s.which != Rows::kOwn) std::shuffle(all.begin(), all.end(), *random);
  if (s.which == Rows::kTwice && s.rows > 1) all[1] = all[0];
  all.resize(static_cast<size_t>(s.rows));
  cache_rows = Indexes<>(all);
}

void FlashCall::make_cache(std::mt19937 *random) {
  const FlashSetting &s = setting;
  int64_t longest = 1;
  for (int r = 0; r < s.rows; r++) longest = std::max(longest, length(r));
  const int64_t columns = s.page ? (longest + s.page - 1) / s.page + 1 : 0, cache_rows_count = s.rows + 2;
  const int64_t pages = s.page ? cache_rows_count * columns + 3 : cache_rows_count;
  const int64_t slots = s.page ? s.page : longest + 7;
  const std::vector<int> order = s.hnd ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{};
  if (s.qv == Qv::kOneBuffer) {
    joint = Array(s.kv, {pages, slots, s.hkv, s.dv + s.d}, order, 3);
    v_cache = joint.columns(0, s.dv);
    k_cache = joint.columns(s.dv, s.d);
  } else {
    k_cache = Array(s.kv, {pages, slots, s.hkv, s.d}, order, s.hnd ? 5 : 0);
    v_cache = Array(s.kv, {pages, slots, s.hkv, s.dv}, order);
  }
  std::vector<int32_t> ids(static_cast<size_t>(pages));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), *random);
  table =
      Indexes<>(std::vector<int32_t>(static_cast<size_t>(cache_rows_count * columns), -1), {cache_rows_count, columns});
  if (s.page) {
    for (size_t i = 0; i < table.values.size(); i++) table.values[i] = ids[i];
  }
  // Only keys that a query sees get numbers. All others stay NaN.
  std::normal_distribution<float> normal;
  const auto descale = [&](float base) {
    Array a(DType::kF32, {s.rows, s.hkv});
    for (int r = 0; r < s.rows; r++) {
      for (int h = 0; h < s.hkv; h++) a.set({r, h}, base * static_cast<float>(1 + (r + h) % 3));
    }
    return a;
  };
  q_descale = descale(0.25f);
  k_descale = descale(0.3f);
  v_descale = descale(0.2f);
  std::vector<uint8_t> needed(static_cast<size_t>(columns * cache_rows_count), 0);
  for (int r = 0; r < s.rows; r++) {
    for (int64_t key = 0; key < length(r); key++) {
      bool seen = key >= cached(r);  // written, and so mapped
      for (int64_t i = 0; i < queries(r) && !seen; i++) seen = sees(r, i, key);
      if (!seen) continue;
      if (s.page) {
        needed[static_cast<size_t>(cache_rows.values[static_cast<size_t>(r)] * columns + key / s.page)] = 1;
      }
      if (key >= cached(r)) continue;
      for (int h = 0; h < s.hkv; h++) {
        std::vector<float> k_row(static_cast<size_t>(s.d)), v_row(static_cast<size_t>(s.dv));
        for (float &x : k_row) x = normal(*random);
        for (float &x : v_row) x = normal(*random);
        set_key(r, key, h, k_row, v_row);
      }
    }
  }
  // Table entries that nothing needs are invalid, so they must not be used.
  constexpr int32_t kWild[3] = {-1, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < table.values.size(); i++) {
    if (!needed[i]) table.values[i] = kWild[i % 3];
  }
}

void FlashCall::make_tokens(std::mt19937 *random) {
  const FlashSetting &s = setting;
  const auto tokens = [&](DType type, bool ragged, const Indexes<> &cu, int heads, int dims, int64_t padding) {
    const int64_t each = cu.values.size() > 1 ? cu.values[1] : 0;
    if (ragged) return Array(type, {cu.values.back() + 2, heads, dims}, {}, padding);
    // A batch whose rows are not adjacent.
    Array a(type, {s.rows, each + 1, heads, dims}, {}, padding);
    a.shape[1] = each;
    return a;
  };
  q = tokens(s.q, s.ragged_q, cu_q, s.hq, s.d, 3);
  q.fill_random(random);
  if (s.qv != Qv::kNone) {
    qv = tokens(s.q, s.ragged_q, cu_q, s.hq, s.dv, 0);
    qv.fill_random(random);
  }
  const bool ragged_new = s.append == New::kRagged;
  k = tokens(s.fresh, ragged_new, cu_new, s.hkv, s.d, 0);
  v = tokens(s.fresh, ragged_new, cu_new, s.hkv, s.dv, 1);
  k.fill_random(random);
  v.fill_random(random);
  out = tokens(s.out, s.ragged_q, cu_q, s.hq, s.dv, 2);
  lse = s.ragged_q ? Array(DType::kF32, {s.hq, cu_q.values.back() + 2})
                   : Array(DType::kF32, {s.rows, s.hq, s.sq}, {0, 1, 2}, 3);
  if (s.rotary_dim) {
    const int64_t positions = s.sk + s.sq + 8;
    cos = Array(is_quantised(s.q) ? DType::kF32 : s.q, {positions, s.rotary_dim / 2});
    sin = Array(cos.type, {positions, s.rotary_dim / 2}, {}, 1);
    for (int64_t p = 0; p < positions; p++) {
      for (int i = 0; i < s.rotary_dim / 2; i++) {
        const double angle = static_cast<double>(p) * std::pow(100.0, -2.0 * i / s.rotary_dim);
        cos.set({p, i}, static_cast<float>(std::cos(angle)));
        sin.set({p, i}, static_cast<float>(std::sin(angle)));
      }
    }
  }
  alibi = s.alibi == 2 ? Array(DType::kF32, {s.rows, s.hq}, {}, 2) : Array(DType::kF32, {s.hq});
  Index index(alibi.shape.size(), 0);
  for (int r = 0; r < (s.alibi == 2 ? s.rows : 1); r++) {
    for (int h = 0; h < s.hq; h++) {
      if (s.alibi == 2) index[0] = r;
      index.back() = h;
      alibi.set(index, 0.01f * static_cast<float>(1 + (h * 3 + r * 5) % 11));
    }
  }
  sinks = Array(DType::kF32, {s.hq});
  sinks.fill_random(random);
}

kvc_flash_attn_args FlashCall::args() {
  const FlashSetting &s = setting;
  kvc_flash_attn_args a;
  kvc_flash_attn_args_init(&a);
  a.flags = s.flags;
  a.q = q.dl();
  a.k_cache = k_cache.dl();
  a.v_cache = v_cache.dl();
  a.out = out.dl();
  a.softmax_lse = lse.dl();
  a.cache_seqlens = lengths.dl();
  if (s.append != New::kNone) {
    a.k = k.dl();
    a.v = v.dl();
    if (s.append == New::kRagged) a.cu_seqlens_k_new = cu_new.dl();
  }
  if (s.qv != Qv::kNone) a.qv = qv.dl();
  if (s.which != Rows::kOwn) a.cache_batch_idx = cache_rows.dl();
  if (s.pad == Pad::kLeft) a.cache_leftpad = pads.dl();
  if (s.page) a.block_table = table.dl();
  if (s.ragged_q) a.cu_seqlens_q = cu_q.dl();
  if (s.rotary_dim) {
    a.rotary_cos = cos.dl();
    a.rotary_sin = sin.dl();
  }
  if (s.descale && is_quantised(s.q)) a.q_descale = q_descale.dl();
  if (s.descale && is_quantised(s.kv)) {
    a.k_descale = k_descale.dl();
    a.v_descale = v_descale.dl();
  }
  if (s.alibi) a.alibi_slopes = alibi.dl();
  if (s.sinks) a.sinks = sinks.dl();
  a.softmax_scale = s.scale;
  a.softcap = s.softcap;
  a.window_left = s.window_left;
  a.window_right = s.window_right;
  a.attention_chunk = s.chunk;
  a.num_splits = s.splits;
  return a;
}

Index FlashCall::place(int row, int64_t key) const {
  const int64_t cache_row = cache_rows.values[static_cast<size_t>(row)];
  if (!setting.page) return {cache_row, key};
  const int64_t columns = table.shape[1];
  return {table.values[static_cast<size_t>(cache_row * columns + key / setting.page)], key % setting.page};
}

// The definition: positions count from the first valid key, and the last query is at the last key.
bool FlashCall::sees(int row, int64_t query, int64_t key) const {
  const FlashSetting &s = setting;
  if (key < pad(row) || key >= length(row)) return false;
  const int64_t j = key - pad(row), valid = length(row) - pad(row), p = valid - queries(row) + query;
  if ((s.flags & KVC_FLASH_ATTN_CAUSAL) && j > p) return false;
  if ((s.flags & KVC_FLASH_ATTN_WINDOW_LEFT) && j < p - s.window_left) return false;
  if ((s.flags & KVC_FLASH_ATTN_WINDOW_RIGHT) && j > p + s.window_right) return false;
  if (s.chunk == 0) return true;
  return p >= 0 && j / s.chunk == p / s.chunk;
}

void FlashCall::set_key(int row, int64_t key, int head, const std::vector<float> &k_row,
                        const std::vector<float> &v_row) {
  const Index at = place(row, key);
  for (size_t d = 0; d < k_row.size(); d++) k_cache.set({at[0], at[1], head, static_cast<int64_t>(d)}, k_row[d]);
  for (size_t d = 0; d < v_row.size(); d++) v_cache.set({at[0], at[1], head, static_cast<int64_t>(d)}, v_row[d]);
}

Index FlashCall::token(int row, int64_t i, int head, bool of_q) const {
  const bool ragged = of_q ? setting.ragged_q : setting.append == New::kRagged;
  const Indexes<> &cu = of_q ? cu_q : cu_new;
  if (ragged) return {cu.values[static_cast<size_t>(row)] + i, head, 0};
  return {row, i, head, 0};
}

std::vector<float> FlashCall::rotated(std::vector<float> x, int64_t position, DType type) const {
  const FlashSetting &s = setting;
  const bool interleaved = (s.flags & KVC_FLASH_ATTN_ROTARY_INTERLEAVED) != 0;
  for (int i = 0; i < s.rotary_dim / 2; i++) {
    float &a = x[static_cast<size_t>(interleaved ? 2 * i : i)];
    float &b = x[static_cast<size_t>(interleaved ? 2 * i + 1 : i + s.rotary_dim / 2)];
    const float c = cos.get({position, i}), n = sin.get({position, i}), first = a, second = b;
    a = round_to(type, rounded_difference(first, c, second, n));
    b = round_to(type, rounded_sum(second, c, first, n));
  }
  return x;
}

// The expected contents of the caches after the call.
void FlashCall::store_expected(Array *k_expected, Array *v_expected) const {
  const FlashSetting &s = setting;
  for (int r = 0; r < s.rows && s.append != New::kNone; r++) {
    for (int64_t i = 0; i < new_tokens(r); i++) {
      const Index at = place(r, cached(r) + i);
      for (int h = 0; h < s.hkv; h++) {
        const auto row_of = [&](const Array &from, int dims) {
          std::vector<float> row;
          Index index = token(r, i, h, false);
          for (index.back() = 0; index.back() < dims; index.back()++) row.push_back(from.get(index));
          return row;
        };
        const auto put = [&](Array *to, const std::vector<float> &row, float scale) {
          for (size_t d = 0; d < row.size(); d++) {
            to->set({at[0], at[1], h, static_cast<int64_t>(d)}, rounded_quotient(row[d], scale));
          }
        };
        const bool scaled = s.descale && is_quantised(s.kv) && !is_quantised(s.fresh);
        std::vector<float> k_row = row_of(k, s.d);
        if (s.rotary_dim) k_row = rotated(k_row, cached(r) + i, DType::kF32);
        put(k_expected, k_row, scaled ? k_descale.get({r, h}) : 1.0f);
        put(v_expected, row_of(v, s.dv), scaled ? v_descale.get({r, h}) : 1.0f);
      }
    }
  }
}

std::vector<float> FlashCall::query_of(int row, int64_t query, int head) const {
  const FlashSetting &s = setting;
  Index index = token(row, query, head, true);
  std::vector<float> x, whole;
  for (index.back() = 0; index.back() < s.d; index.back()++) x.push_back(q.get(index));
  if (s.rotary_dim) {
    const bool moves =
        (s.flags & (KVC_FLASH_ATTN_CAUSAL | KVC_FLASH_ATTN_WINDOW_LEFT | KVC_FLASH_ATTN_WINDOW_RIGHT)) != 0;
    x = rotated(x, cached(row) + (moves ? query : 0), s.q);
  }
  if (s.qv != Qv::kNone) {
    for (index.back() = 0; index.back() < s.dv; index.back()++) whole.push_back(qv.get(index));
  }
  whole.insert(whole.end(), x.begin(), x.end());
  const float scale = s.descale && is_quantised(s.q) ? q_descale.get({row, head / (s.hq / s.hkv)}) : 1.0f;
  for (float &e : whole) e *= scale;
  return whole;
}

void FlashCall::check_query(int row, int64_t query, int head) const {
  const FlashSetting &s = setting;
  const int kv_head = head / (s.hq / s.hkv);
  const std::vector<float> x = query_of(row, query, head);
  const bool scaled = s.descale && is_quantised(s.kv);
  const float k_scale = scaled ? k_descale.get({row, kv_head}) : 1.0f;
  const float v_scale = scaled ? v_descale.get({row, kv_head}) : 1.0f;
  std::vector<float> keys, values;
  std::vector<double> bias;
  const double p = static_cast<double>(length(row) - queries(row) + query);
  const double slope =
      s.alibi == 0 ? 0.0 : static_cast<double>(s.alibi == 2 ? alibi.get({row, head}) : alibi.get({head}));
  for (int64_t key = 0; key < length(row); key++) {
    if (!sees(row, query, key)) continue;
    const Index at = place(row, key);
    Index element = {at[0], at[1], kv_head, 0};
    for (int64_t &d = element[3] = 0; d < s.dv; d++) values.push_back(v_cache.get(element) * v_scale);
    if (s.qv != Qv::kNone) keys.insert(keys.end(), values.end() - s.dv, values.end());
    for (int64_t &d = element[3] = 0; d < s.d; d++) keys.push_back(k_cache.get(element) * k_scale);
    const double distance = p - static_cast<double>(key);
    bias.push_back(-slope * ((s.flags & KVC_FLASH_ATTN_ALIBI_SIGNED) != 0 ? distance : std::fabs(distance)));
  }
  const int width = s.d + (s.qv != Qv::kNone ? s.dv : 0);
  const double scale = s.scale != 0.0 ? s.scale : 1.0 / std::sqrt(static_cast<double>(width));
  const float sink = sinks.get({head});
  AttentionInput in = {x.data(),    width,
                       s.dv,        static_cast<int64_t>(bias.size()),
                       keys.data(), values.data(),
                       width,       s.dv,
                       scale,       type_of_p(s.q, s.kv),
                       0.0,         s.softcap,
                       bias.data(), s.sinks ? &sink : nullptr};
  const AttentionOutput expected = attend_reference(in);
  Index index = token(row, query, head, true);
  for (index.back() = 0; index.back() < s.dv; index.back()++) {
    const double got = static_cast<double>(out.get(index)), wanted = expected.out[static_cast<size_t>(index.back())];
    const double most = expected.tolerance + half_ulp(s.out, wanted);
    ASSERT_LE(std::fabs(got - wanted), most) << "row " << row << " query " << query << " head " << head << " dim "
                                             << index.back() << ": " << got << ", not " << wanted;
  }
  const double got = static_cast<double>(s.ragged_q ? lse.get({head, cu_q.values[static_cast<size_t>(row)] + query})
                                                    : lse.get({row, head, query}));
  if (std::isinf(expected.lse)) {
    ASSERT_EQ(got, expected.lse) << "row " << row << " query " << query << " head " << head;
  } else {
    ASSERT_LE(std::fabs(got - expected.lse), expected.lse_tolerance)
        << "row " << row << " query " << query << " head " << head << ": LSE " << got << ", not " << expected.lse;
  }
}

void FlashCall::run_and_check(kvc_context *context, bool all) {
  SCOPED_TRACE(describe(setting));
  Array k_expected = k_cache, v_expected = v_cache, joint_expected = joint;
  if (setting.qv == Qv::kOneBuffer) {
    v_expected = joint_expected.columns(0, setting.dv);
    k_expected = joint_expected.columns(setting.dv, setting.d);
  }
  store_expected(&k_expected, &v_expected);
  kvc_flash_attn_args a = args();
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_flash_attn_with_kvcache(context, &a, nullptr, &error), KVC_OK) << error.message;
  ASSERT_TRUE(k_cache.storage() == k_expected.storage()) << "k_cache is not what was to be stored";
  ASSERT_TRUE(v_cache.storage() == v_expected.storage()) << "v_cache is not what was to be stored";
  std::mt19937 random(setting.seed);
  for (int r = 0; r < setting.rows; r++) {
    std::set<int64_t> some = {0, queries(r) - 1, queries(r) / 2};
    for (int i = 0; i < 4; i++) some.insert(static_cast<int64_t>(random() % 1000));
    for (int64_t i = 0; i < queries(r); i++) {
      if (!all && some.count(i) == 0) continue;
      for (int h = 0; h < setting.hq; h++) {
        if (!all && setting.hq > 3 && h != static_cast<int>((i + r) % setting.hq) && h != setting.hq - 1) continue;
        check_query(r, i, h);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace kvt
