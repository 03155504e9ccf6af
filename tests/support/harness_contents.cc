// Contents: stored values are the given ones, rotated and rounded.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "harness.h"
#include "harness_call.h"
#include "quantise.h"
#include "reference.h"

namespace kvt {

// ---- Contents ----------------------------------------------------------------------------------

float Harness::value(const Token &token, int64_t position, int layer, int head, int dim, int which) {
  uint64_t h = hash((static_cast<uint64_t>(token.tag) << 32) ^ static_cast<uint64_t>(position));
  h = hash(h ^ (static_cast<uint64_t>(layer) << 40) ^ (static_cast<uint64_t>(head) << 24) ^
           (static_cast<uint64_t>(dim) << 4) ^ static_cast<uint64_t>(which));
  // 8 significant bits, which are exact in every dtype; or 24 bits, which must be rounded.
  if (!token.rough) return static_cast<float>(static_cast<int8_t>(h)) / 128.0f;
  return round_to(token.input, static_cast<float>(static_cast<int32_t>(h) >> 8) / 8388608.0f);
}

Token Harness::new_token() {
  Token token;
  token.tag = next_tag_++;
  return token;
}

void Harness::expected(const Token &token, int64_t position, int layer, int head, int which, float *values,
                       float *flips) const {
  layer = source(layer);
  const LayerSpec &l = spec_.layers[layer];
  if (which == 1 && l.latent) {
    std::vector<float> row(l.d), row_flips(l.d);
    expected(token, position, layer, head, 0, row.data(), row_flips.data());
    std::copy_n(row.data(), l.latent, values);
    std::copy_n(row_flips.data(), l.latent, flips);
    return;
  }
  const int dim = which ? l.v_dim() : l.d, first = l.latent;  // the rotated dims begin after the latent part
  for (int i = 0; i < dim; i++) values[i] = value(token, position, layer, head, i, which);
  const bool rotated = which == 0 && l.rope == KVC_ROPE_ON_APPEND && !token.as_stored;
  if (is_quantised(l.dtype)) {
    std::vector<double> exact(values, values + dim), slack(dim, 0.0);
    if (rotated) {
      const std::vector<float> raw(values, values + dim);
      rotate(raw.data() + first, dim - first, l.rotated(), l.base(), position, exact.data() + first,
             slack.data() + first);
    }
    if (l.dtype == DType::kU4) return quantise_uint4_row(l.rotation_block(which), exact, slack, values, flips);
    if (l.dtype == DType::kDsMla) return quantise_ds_mla_row(exact, slack, values, flips);
    if (l.dtype == DType::kE2M1) return quantise_e2m1_row(l.head_scale(which, head), exact, slack, values, flips);
    quantise_row(l.dtype, l.head_scale(which, head), exact, slack, values, flips);
    return;
  }
  const int plain = rotated ? first : dim;
  for (int i = 0; i < plain; i++) {
    values[i] = round_to(l.dtype, values[i]);
    flips[i] = 0;
  }
  if (!rotated) return;
  const std::vector<float> raw(values + first, values + dim);
  rotate_rounded(l.dtype, raw.data(), dim - first, l.rotated(), l.base(), position, values + first, flips + first);
}

namespace {

// A row of an export, times its scale.
void read_export(const DLTensor &t, const Managed &scale, const LayerSpec &l, int64_t token, int head, int which,
                 std::vector<float> *row) {
  const DType type = l.dtype;
  const int dims = static_cast<int>(row->size());
  const auto *bytes = static_cast<const uint8_t *>(t.data) + token * t.strides[0] + head * t.strides[1];
  if (type == DType::kDsMla) return read_ds_mla(bytes, dims, row->data());
  float factor = 1;
  if (is_quantised(type)) {
    factor = has_row_scales(type) ? at(scale->dl_tensor, {token, head}) : at(scale->dl_tensor, {head});
  }
  if (type == DType::kU4) return read_uint4_row(bytes, factor, dims, l.rotation_block(which), row->data());
  if (type == DType::kE2M1) return read_e2m1_row(bytes, dims, factor, dims, row->data());
  for (int i = 0; i < dims; i++) {
    (*row)[static_cast<size_t>(i)] =
        is_quantised(type) ? static_cast<float>(byte_value(type, bytes[i])) * factor : at(t, {token, head, i});
  }
}

// float8 and 4 bits come as uint8.
bool is_export_dtype(DLDataType got, DType type) {
  const DLDataType wanted = is_quantised(type) && type != DType::kI8 ? DLDataType{kDLUInt, 8, 1} : dl_type(type);
  return got.code == wanted.code && got.bits == wanted.bits && got.lanes == 1;
}

}  // namespace

// The tokens of a sequence that a layer holds: those before the first forward that did not cover the layer.
int64_t Harness::held(int handle, int layer) const {
  const std::vector<Token> &tokens = tokens_in(sequence(handle), static_cast<size_t>(spec_.layers[layer].group));
  const auto lacks = [&](const Token &token) { return !(token.layers >> source(layer) & 1); };
  return std::find_if(tokens.begin(), tokens.end(), lacks) - tokens.begin();
}

void Harness::check_contents(int handle, int layer, int64_t begin, int64_t end) {
  const Sequence &s = sequence(handle);
  if (held(handle, layer) < (end == 0 ? length_in(handle, spec_.layers[layer].group) : end)) {
    return check_export_refused(handle, layer, begin, end);
  }
  const LayerSpec &l = spec_.layers[layer];
  kvc_exported exported;
  kvc_exported_init(&exported);
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.layer = layer;
  args.position_begin = begin;
  args.position_end = end;
  call("kvc_seq_export", {},
       [&](kvc_error *e) { return kvc_seq_export(cache_.get(), s.id, &args, &exported, nullptr, e); });
  const Managed owners[2] = {Managed(exported.k), Managed(exported.v)};
  const Managed scales[2] = {Managed(exported.k_scale), Managed(exported.v_scale)};
  const bool row = l.latent > 0;  // one for K and V
  const bool scaled = has_row_scales(l.dtype) || has_head_scales(l.dtype);
  if (!owners[0] || !owners[1] != row || !scales[0] == scaled || !scales[1] == (scaled && !row)) {
    fail("export: not all that the layer has, or more");
  }
  const std::vector<Token> &tokens = tokens_in(s, static_cast<size_t>(l.group));
  if (end == 0) end = static_cast<int64_t>(tokens.size());
  for (int which = 0; which < (row ? 1 : 2); which++) {
    const DLTensor &t = owners[which]->dl_tensor;
    const int dim = which ? l.v_dim() : l.d;
    if (t.ndim != 3 || t.shape[0] != end - begin || t.shape[1] != l.hkv ||
        t.shape[2] != (is_quantised(l.dtype) ? row_bytes(l.dtype, dim) : dim))
      fail("export shape");
    if (!t.strides || t.byte_offset != 0 || (end > begin && reinterpret_cast<uintptr_t>(t.data) % 256 != 0)) {
      fail("export: strides NULL, byte_offset not 0, or data not 256-byte aligned");
    }
    if (!is_export_dtype(t.dtype, l.dtype) || t.device.device_type != test_device().device_type)
      fail("export dtype or device");
    std::vector<float> values(dim), flips(dim), stored(dim);
    for (int64_t p = begin; p < end; p++) {
      for (int h = 0; h < l.hkv; h++) {
        expected(tokens[p], p, layer, h, which, values.data(), flips.data());
        read_export(t, scales[which], l, p - begin, h, which, &stored);
        for (int i = 0; i < dim; i++) {
          const float got = stored[i];
          if (got == values[i] || std::fabs(static_cast<double>(got) - values[i]) <= flips[i]) continue;
          std::ostringstream out;
          out << (which ? "V" : "K") << " of sequence " << handle << " layer " << layer << " position " << p << " head "
              << h << " dim " << i << ": stored " << got << ", expected " << values[i] << " (slack " << flips[i] << "; "
              << name_of(l.dtype) << " from " << name_of(tokens[p].input) << ", D " << l.d << "/" << l.v_dim() << ", "
              << l.hkv << " heads, " << l.num_scales << " scales)";
          fail(out.str());
        }
      }
    }
  }
}

void Harness::check_contents(int handle) {
  for (size_t layer = 0; layer < spec_.layers.size(); layer++) {
    const int64_t length = length_in(handle, spec_.layers[layer].group);
    if (length == 0) continue;
    const Freed gone = freed(handle, spec_.layers[layer].group);
    if (gone.begin > 0) check_contents(handle, static_cast<int>(layer), 0, std::min(gone.begin, length));
    if (gone.end < length) check_contents(handle, static_cast<int>(layer), gone.end, length);
  }
}

void Harness::check_export_refused(int handle, int layer, int64_t begin, int64_t end) {
  Faults faults;
  const Sequence &s = sequence(handle);
  if (s.forward >= 0) faults.push_back({KVC_ERROR_BUSY});
  const bool layer_exists = layer >= 0 && layer < static_cast<int>(spec_.layers.size());
  const int64_t length = layer_exists ? length_in(handle, spec_.layers[layer].group) : 0;
  if (!layer_exists) faults.push_back({KVC_ERROR_OUT_OF_RANGE});
  const int64_t last = end == 0 ? length : end;
  if (begin < 0 || last > length || begin > last) {
    faults.push_back({KVC_ERROR_OUT_OF_RANGE});
  }
  if (layer_exists) {
    const Freed gone = freed(handle, spec_.layers[layer].group);
    if (gone.begin < gone.end && begin < gone.end && last > gone.begin) faults.push_back({KVC_ERROR_EVICTED});
    if (last > held(handle, layer)) faults.push_back({KVC_ERROR_ORDER, layer});
  }
  if (faults.empty()) return;
  DLManagedTensorVersioned *k = nullptr, *v = nullptr;
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.layer = layer;
  args.position_begin = begin;
  args.position_end = end;
  call("kvc_seq_export", faults,
       [&](kvc_error *e) { return export_kv(cache_.get(), s.id, &args, &k, &v, nullptr, e); });
  if (k || v) fail("a refused export set its outputs");
}

}  // namespace kvt
