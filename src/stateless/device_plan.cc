#include "stateless/device_plan.h"

#include <algorithm>
#include <cinttypes>

#include "tensor/index_tensor.h"

namespace kvc {
namespace {

bool reads(const Context& context, const DLTensor* tensor) {
  return tensor == nullptr || context.is_host() || host_reads(*tensor);
}

// Checks an index array on the device. If *size is -1, any size is accepted. *size becomes the size of the array.
Status read_indexes(const DLTensor* tensor, const char* name, int64_t* size, DLDevice device,
                    kvc_backend_indexes* out) {
  if (tensor == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL", name);
  if (host_reads(*tensor)) {
    return Status::error(KVC_ERROR_DEVICE, "%s is on the host, and other arrays on the device: put all on one of them",
                         name);
  }
  IndexTensor index;
  KVC_TRY(IndexTensor::read(tensor, {.name = name, .device = device, .size = *size, .exact = true}, &index));
  *size = index.size();
  *out = index.on_device();
  return Status();
}

template <class T>
T* data_of(const DLTensor& tensor) {
  return tensor.ndim == 0 ? nullptr : static_cast<T*>(tensor.data);
}

}  // namespace

Status DevicePlan::create(std::shared_ptr<Context> context, const kvc_plan_config& config,
                          std::unique_ptr<DevicePlan>* out) {
  std::unique_ptr<DevicePlan> plan(new DevicePlan(std::move(context)));
  KVC_TRY(TablePlan::create(config, &plan->plan_));
  *out = std::move(plan);
  return Status();
}

// Chooses the place of each array's copy. In graph mode, the place is the same in every build.
void DevicePlan::place() {
  arrays_.clear();
  plan_->for_each_table([&](int32_t, int32_t, kvc_tables* tables) {
    for_each_tensor(tables, [&](DLTensor* tensor) { arrays_.add(*tensor); });
  });
  const DLTensor word = plan_->generation_word();
  arrays_.add(word);
}

Status DevicePlan::build(const kvc_plan_args& args, void* stream, uint64_t* generation) {
  bool on_host = true;
  for (const DLTensor* tensor : {args.seq_lens, args.append_lengths, args.rows, args.block_table, args.req_to_token,
                                 args.encoder_lens, args.tree_parents}) {
    on_host = on_host && reads(*context_, tensor);
  }
  if (!on_host) return build_on_device(args, stream, generation);
  KVC_TRY(plan_->build(args, generation));
  if (context_->is_host()) return Status();
  place();
  KVC_TRY(arrays_.upload(context_, stream));
  word_ = arrays_.copy_of(static_cast<int64_t*>(plan_->generation_word().data));
  return Status();
}

void DevicePlan::refuse(void* stream) noexcept {
  plan_->refuse();
  const int64_t stale = 0;
  // If this upload fails, the tables on the device do not become stale. The upload fails if the device has failed,
  // which every later call reports. On CUDA, the upload also fails if too many calls use the device at once.
  if (word_ != nullptr) (void)context_->upload(word_, &stale, sizeof stale, stream);
}

Status DevicePlan::tables(int32_t step, kvc_tables* out) {
  KVC_TRY(plan_->tables(step, out));
  if (context_->is_host()) return Status();
  for_each_tensor(out, [&](DLTensor* tensor) { arrays_.point(tensor); });
  return Status();
}

Status DevicePlan::read_arrays(const kvc_plan_args& args, kvc_backend_table_plan* build) const {
  const DLDevice device = context_->dl_device();
  const kvc_plan_config& config = plan_->config();
  const auto read = [&](const DLTensor* tensor, const char* name, int64_t* size, kvc_backend_indexes* out) {
    return read_indexes(tensor, name, size, device, out);
  };
  int64_t rows = -1;
  KVC_TRY(read(args.seq_lens, "seq_lens", &rows, &build->seq_lens));
  build->num_rows = rows;
  if (rows > config.max_rows) {
    return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "%" PRId64 " rows exceed max_rows %d", rows, config.max_rows)
        .missing(rows, config.max_rows);
  }
  KVC_TRY(plan_->check_given(args));
  if (config.mode == KVC_PLAN_EXTEND) {
    KVC_TRY(read(args.append_lengths, "append_lengths", &rows, &build->append_lengths));
  }
  build->rows = {nullptr, 1, 0, 0};
  if (args.rows != nullptr) KVC_TRY(read(args.rows, "rows", &rows, &build->rows));
  if (args.encoder_lens != nullptr) KVC_TRY(read(args.encoder_lens, "encoder_lens", &rows, &build->encoder_lens));
  if (args.tree_parents != nullptr) {
    int64_t nodes = rows * config.num_draft_tokens;
    KVC_TRY(read(args.tree_parents, "tree_parents", &nodes, &build->tree_parents));
  }
  build->table_of_slots = args.req_to_token != nullptr ? 1 : 0;
  const DLTensor* const table = args.req_to_token != nullptr ? args.req_to_token : args.block_table;
  const char* const name = args.req_to_token != nullptr ? "req_to_token" : "block_table";
  if (table != nullptr && host_reads(*table)) {
    return Status::error(KVC_ERROR_DEVICE, "%s is on the host, and seq_lens on the device: put all on one of them",
                         name);
  }
  IndexTable view;
  KVC_TRY(IndexTable::read(table, {name, device}, "[rows, columns]", false, &view));
  build->table = view.narrow();
  build->num_table_rows = view.num_rows();
  build->num_columns = view.num_columns();
  build->table_stride = view.row_stride();
  if (args.rows != nullptr || rows <= view.num_rows()) return Status();
  return Status::error(KVC_ERROR_SHAPE, "seq_lens has %" PRId64 " rows, and %s %" PRId64, rows, name, view.num_rows());
}

// Lists the tables of a build that the device makes, with addresses on the device.
void DevicePlan::list_tables(const kvc_plan_args& args) {
  const bool verify = plan_->config().mode == KVC_PLAN_VERIFY, trees = args.tree_parents != nullptr;
  tables_.clear();
  tokens_.clear();
  plan_->for_each_table([&](int32_t step, int32_t part, kvc_tables* t) {
    for_each_tensor(t, [&](DLTensor* tensor) { arrays_.point(tensor); });
    if (part < 0) {
      tokens_.push_back(
          {data_of<int64_t>(t->slot_mapping), data_of<int32_t>(t->positions), data_of<int32_t>(t->last_rows)});
      return;
    }
    const bool encoder = part == KVC_TABLES_ENCODER;
    if (encoder ? args.encoder_lens == nullptr : verify && trees == (part == KVC_TABLES_WHOLE)) return;
    kvc_backend_table table = {};
    table.part = part;
    table.step = step;
    table.max_rows = static_cast<int32_t>(t->cache_seqlens.shape[0]);
    table.max_columns = t->max_pages;
    table.block_table = data_of<int32_t>(t->block_table);
    table.table_stride = t->max_pages;
    table.indptr = data_of<int32_t>(t->indptr);
    table.indices = data_of<int32_t>(t->indices);
    table.last_page_len = data_of<int32_t>(t->last_page_len);
    table.cache_seqlens = data_of<int32_t>(t->cache_seqlens);
    table.key_starts = data_of<int32_t>(t->key_starts);
    table.leftpad = data_of<int32_t>(t->leftpad);
    table.batch_rows = data_of<int32_t>(t->batch_rows);
    table.cu_seqlens_q = data_of<int32_t>(t->cu_seqlens_q);
    table.cu_seqlens_k = data_of<int32_t>(t->cu_seqlens_k);
    tables_.push_back(table);
  });
}

Status DevicePlan::build_on_device(const kvc_plan_args& args, void* stream, uint64_t* generation) {
  if (!plan_->fixed()) {
    return Status::error(
        KVC_ERROR_INVALID_ARGUMENT,
        "arrays on the device without KVC_PLAN_GRAPH: the host does not know how large the tables are");
  }
  kvc_backend_table_plan build = {};
  KVC_TRY(read_arrays(args, &build));
  place();
  KVC_TRY(arrays_.reserve(context_));
  list_tables(args);
  build.config = &plan_->config();
  build.max_tokens = plan_->max_tokens();
  build.num_tables = static_cast<int32_t>(tables_.size());
  build.tables = tables_.data();
  build.tokens = tokens_.empty() ? nullptr : tokens_.data();
  build.generation_word = word_ = arrays_.copy_of(static_cast<int64_t*>(plan_->generation_word().data));
  const uint64_t number = plan_->start_on_device(args.tree_parents != nullptr, args.encoder_lens != nullptr);
  build.generation = static_cast<int64_t>(number);
  kvc_error error = KVC_ERROR_INIT;
  KVC_TRY(Status::from(context_->backend().plan_tables(context_->device(), &build, stream, &error), error));
  if (generation != nullptr) *generation = number;
  return Status();
}

}  // namespace kvc
