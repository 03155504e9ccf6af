// Section 8 of the header: views, exports, imports.
#include "api/boundary.h"

using namespace kvc;
using namespace kvc::api;

kvc_status kvc_cache_export_pool(kvc_cache* cache, int32_t layer, int32_t pool, uint32_t flags,
                                 DLManagedTensorVersioned** tensor, void* stream, kvc_error* error) {
  return cache_call("kvc_cache_export_pool", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_not_null(tensor, "tensor"));
    return c.tensors.export_pool(layer, pool, flags, tensor, stream);
  });
}

kvc_status kvc_seq_export(kvc_cache* cache, kvc_seq sequence, const kvc_export_args* args, kvc_exported* exported,
                          void* stream, kvc_error* error) {
  return cache_call("kvc_seq_export", cache, error, [&](Cache& c) -> Status {
    kvc_export_args known;
    KVC_TRY(read_struct(args, "args", &known));
    KVC_TRY(check_struct_size(exported, "exported"));
    kvc_exported value;
    kvc_exported_init(&value);
    KVC_TRY(c.tensors.export_sequence(sequence, known, &value, stream));
    write_struct(value, exported);
    return Status();
  });
}

kvc_status kvc_seq_import(kvc_cache* cache, kvc_seq sequence, const kvc_import_args* args, void* stream,
                          kvc_error* error) {
  return cache_call("kvc_seq_import", cache, error, [&](Cache& c) -> Status {
    kvc_import_args known;
    KVC_TRY(read_struct(args, "args", &known));
    return c.tensors.import_sequence(sequence, known, stream);
  });
}
