#include "tables.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "array.h"
#include "dtype.h"
#include "error.h"
#include "integers.h"
#include "tensor.h"

namespace kvcpy {

namespace {

// Returns an array of one or two dimensions: a view that keeps `owner` alive, or a copy if `owner` is null.
template <typename T>
nb::object array_of(const DLTensor& tensor, nb::handle owner) {
  const auto* data = static_cast<const T*>(tensor.data);
  const size_t rows = static_cast<size_t>(tensor.shape[0]);
  const size_t columns = tensor.ndim == 2 ? static_cast<size_t>(tensor.shape[1]) : 1;
  if (owner.is_valid()) {
    return nb::cast(nb::ndarray<nb::numpy, const T>(
        data, static_cast<size_t>(tensor.ndim), reinterpret_cast<const size_t*>(tensor.shape), owner, tensor.strides));
  }
  auto copy = std::make_unique<T[]>(std::max<size_t>(rows * columns, 1));
  for (size_t row = 0; row < rows; ++row) {
    std::copy_n(data + static_cast<int64_t>(row) * tensor.strides[0], columns, copy.get() + row * columns);
  }
  T* values = copy.get();
  nb::capsule keeper(copy.get(), [](void* pointer) noexcept { delete[] static_cast<T*>(pointer); });
  copy.release();
  const size_t shape[2] = {rows, columns};
  return nb::cast(nb::ndarray<nb::numpy, T>(values, static_cast<size_t>(tensor.ndim), shape, keeper));
}

// Converts the arrays of one kvc_tables to Python objects.
struct Taker {
  nb::handle owner;
  const std::shared_ptr<void>& memory;
  const Work& work;

  nb::object operator()(const DLTensor& tensor) const {
    if (tensor.ndim == 0) return nb::none();
    if (tensor.device.device_type == kDLCUDA) return nb::cast(Tensor::view_of(tensor, memory, work));
    return tensor.dtype.bits == 64 ? array_of<int64_t>(tensor, owner) : array_of<int32_t>(tensor, owner);
  }
};

int32_t part_from(nb::handle part) {
  static constexpr const char* kNames[] = {"whole", "prefix", "branches", "encoder"};
  const std::string name = PyUnicode_Check(part.ptr()) ? nb::borrow<nb::str>(part).c_str() : "";
  for (int32_t i = 0; i < 4; ++i) {
    if (name == kNames[i]) return i;
  }
  raise(KVC_ERROR_INVALID_ARGUMENT, -1, "tables: part must be \"whole\", \"prefix\", \"branches\" or \"encoder\"");
}

// Returns the flags KVC_TABLES_* of the names. None gives 0, which means all arrays.
uint32_t arrays_from(nb::handle names) {
  uint32_t bits = 0;
  if (names.is_none()) return bits;
  for (nb::handle item : names) {
    const std::string name = PyUnicode_Check(item.ptr()) ? nb::borrow<nb::str>(item).c_str() : "";
    if (name == "dense") {
      bits |= KVC_TABLES_DENSE;
    } else if (name == "csr") {
      bits |= KVC_TABLES_CSR;
    } else if (name == "tokens") {
      bits |= KVC_TABLES_TOKENS;
    } else {
      raise(KVC_ERROR_INVALID_ARGUMENT, -1, "tables: arrays must be of \"dense\", \"csr\" and \"tokens\"");
    }
  }
  return bits;
}

}  // namespace

Tables::Tables(const kvc_tables& t, nb::handle owner, std::shared_ptr<void> memory, const Work& work)
    : Tables(t, Taker{owner, memory, work}) {}

template <class Take>
Tables::Tables(const kvc_tables& t, const Take& take)
    : block_table(take(t.block_table)),
      cache_seqlens(take(t.cache_seqlens)),
      cu_seqlens_q(take(t.cu_seqlens_q)),
      cu_seqlens_k(take(t.cu_seqlens_k)),
      indptr(take(t.indptr)),
      indices(take(t.indices)),
      last_page_len(take(t.last_page_len)),
      key_starts(take(t.key_starts)),
      leftpad(take(t.leftpad)),
      batch_rows(take(t.batch_rows)),
      sink_tokens(take(t.sink_tokens)),
      hole_tokens(take(t.hole_tokens)),
      slot_mapping(take(t.slot_mapping)),
      positions(take(t.positions)),
      last_rows(take(t.last_rows)),
      generation_word(take(t.generation_word)),
      causal(t.causal != 0),
      num_rows(t.num_rows),
      num_queries(t.num_queries),
      page_size(t.page_size),
      max_seqlen_q(t.max_seqlen_q),
      max_seqlen_k(t.max_seqlen_k),
      max_pages(t.max_pages),
      num_pages(t.num_pages),
      num_keys(t.num_keys),
      generation(static_cast<int64_t>(t.generation)) {}

kvc_tables Tables::wanted(nb::handle part, bool slots, nb::handle pad, nb::handle arrays) {
  kvc_tables tables;
  kvc_tables_init(&tables);
  tables.part = part_from(part);
  tables.flags = slots ? KVC_TABLES_SLOTS : 0;
  if (!pad.is_none()) {
    tables.flags |= KVC_TABLES_PAD_VALUE;
    tables.pad_value = saturate(integer_from_python(pad));
  }
  tables.arrays = arrays_from(arrays);
  return tables;
}

void Tables::bind(nb::module_& module) {
  nb::class_<Tables>(module, "Tables",
                     R"(Tables of one step for attention kernels, as numpy arrays: Step.tables() and Plan.tables().

R rows, T new tokens. Arrays that were not requested are None. docs/reference/tables.md describes each.)")
      .def_ro("block_table", &Tables::block_table, "[R, max_pages]: page ids, then padding.")
      .def_ro("cache_seqlens", &Tables::cache_seqlens, "[R]: tokens up to the last key, leftpad and hole included.")
      .def_ro("cu_seqlens_q", &Tables::cu_seqlens_q, "[R + 1]: where each row's queries begin.")
      .def_ro("cu_seqlens_k", &Tables::cu_seqlens_k, "[R + 1]: sums of keys, leftpad and hole not counted.")
      .def_ro("indptr", &Tables::indptr, "[R + 1]: where each row's pages begin in indices.")
      .def_ro("indices", &Tables::indices, "[pages]: page ids of all rows.")
      .def_ro("last_page_len", &Tables::last_page_len, "[R]: 1..page_size; 0 of a row without pages.")
      .def_ro("key_starts", &Tables::key_starts, "[R]: position of the first key, sinks aside.")
      .def_ro("leftpad", &Tables::leftpad, "[R]: tokens of the first page before the first key.")
      .def_ro("batch_rows", &Tables::batch_rows, "[R]: row of the batch; -1 = unused (graph mode).")
      .def_ro("sink_tokens", &Tables::sink_tokens, "[R] or None: leading tokens that every query sees.")
      .def_ro("hole_tokens", &Tables::hole_tokens, "[R] or None: tokens after the sinks that no query sees.")
      .def_ro("slot_mapping", &Tables::slot_mapping, "int64 [T]: slot of each new token; -1 = padding.")
      .def_ro("positions", &Tables::positions, "[T]: position of each new token.")
      .def_ro("last_rows", &Tables::last_rows, "[batch]: index of each row's last token; -1 = none.")
      .def_ro("generation_word", &Tables::generation_word, "int64 [1] of a Plan: 0 = stale.")
      .def_ro("causal", &Tables::causal,
              "Whether queries are the last keys of their row and see those up to themselves.")
      .def_ro("num_rows", &Tables::num_rows)
      .def_ro("num_queries", &Tables::num_queries)
      .def_ro("page_size", &Tables::page_size)
      .def_ro("max_seqlen_q", &Tables::max_seqlen_q)
      .def_ro("max_seqlen_k", &Tables::max_seqlen_k)
      .def_ro("max_pages", &Tables::max_pages)
      .def_ro("num_pages", &Tables::num_pages)
      .def_ro("num_keys", &Tables::num_keys)
      .def_ro("generation", &Tables::generation, "Number of the Plan's build.");
}

Plan::Plan(nb::handle_t<Context> context, nb::dict values) {
  handle_->context = nb::inst_ptr<Context>(context)->handle();
  const auto number = [&](const char* name) { return integer_from_python(values[name]); };
  const auto small = [&](const char* name) { return saturate(number(name)); };
  kvc_plan_config config;
  kvc_plan_config_init(&config);
  config.flags = static_cast<uint32_t>(number("flags"));
  config.mode = small("mode");
  config.page_size = small("page_size");
  config.num_draft_tokens = small("num_draft_tokens");
  config.num_steps = small("num_steps");
  config.top_k = small("top_k");
  config.max_rows = small("max_rows");
  config.max_tokens = small("max_tokens");
  config.max_pages_per_row = small("max_pages_per_row");
  config.window_tokens = number("window");
  config.chunk_tokens = number("chunk");
  config.num_pool_pages = number("num_pool_pages");
  config.arrays = arrays_from(values["arrays"]);
  if (nb::object pad = values["pad"]; !pad.is_none()) {
    config.flags |= KVC_PLAN_PAD_VALUE;
    config.pad_value = saturate(integer_from_python(pad));
  }
  graph_ = (config.flags & KVC_PLAN_GRAPH) != 0;
  call_quick(
      [&](kvc_error* error) { return kvc_plan_create(handle_->context->context, &config, &handle_->plan, error); });
}

uint64_t Plan::build(nb::dict arrays, bool rows_grew, nb::handle stream) {
  const DLDevice device = handle_->context->device;
  const nb::object lens = arrays["seq_lens"];
  const bool on_device =
      device.device_type != kDLCPU && lies_on(lens, device);  // the library checks that all arrays are
  Work work = on_device ? Work::on(device, stream, lens) : Work::on(device, stream);
  Work host;
  static constexpr const char* kNames[] = {"seq_lens",     "append_lengths", "rows",        "block_table",
                                           "req_to_token", "encoder_lens",   "tree_parents"};
  const DLTensor** fields[7];
  kvc_plan_args args;
  kvc_plan_args_init(&args);
  args.flags = rows_grew ? KVC_PLAN_ROWS_GREW : 0;
  fields[0] = &args.seq_lens, fields[1] = &args.append_lengths, fields[2] = &args.rows, fields[3] = &args.block_table;
  fields[4] = &args.req_to_token, fields[5] = &args.encoder_lens, fields[6] = &args.tree_parents;
  ArrayArgument given[7];
  for (int i = 0; i < 7; ++i) {
    nb::object array = arrays[kNames[i]];
    if (!array.is_none()) given[i].read(array, kNames[i], kNoDtype, on_device && lies_on(array, device) ? work : host);
    *fields[i] = given[i].tensor();
  }
  uint64_t generation = 0;
  call_quick([&](kvc_error* error) { return kvc_plan_build(handle_->plan, &args, work.stream(), &generation, error); });
  work.hand_back();
  work_ = work;
  return generation;
}

Tables Plan::tables(int64_t step, nb::handle part) {
  kvc_tables tables = Tables::wanted(part, false, nb::none(), nb::none());
  call_quick([&](kvc_error* error) { return kvc_plan_tables(handle_->plan, saturate(step), &tables, error); });
  return Tables(tables, graph_ ? nb::find(this) : nb::handle(), handle_, work_);
}

void Plan::check(nb::handle generation) const {
  const int64_t number = std::max<int64_t>(0, integer_from_python(generation));
  call_quick([&](kvc_error* error) { return kvc_plan_check(handle_->plan, static_cast<uint64_t>(number), error); });
}

void Plan::bind(nb::module_& module) {
  nb::class_<Plan>(module, "Plan")
      .def(nb::init<nb::handle_t<Context>, nb::dict>(), nb::arg("context"), nb::arg("config"))
      .def("_build", &Plan::build, nb::arg("arrays"), nb::arg("rows_grew"), nb::arg("stream").none() = nb::none())
      .def("tables", &Plan::tables, nb::arg("step") = 0, nb::arg("part") = "whole",
           R"(The tables that the last build made.

Args:
    step: "draft_decode": 0..num_steps - 1; else 0.
    part: "whole"; "prefix" and "branches" where steps branch; "encoder" with encoder_lens.

Returns:
    Tables: new arrays; of a graph plan read-only views, whose addresses never change.

Raises: Stale (no build, or the last was refused), OutOfRange (step), InvalidArgument (a part that there is not).)")
      .def("check", &Plan::check, nb::arg("generation"),
           "Raises Stale unless the tables hold build `generation`: to be asked before recorded calls are replayed.");
}

}  // namespace kvcpy
