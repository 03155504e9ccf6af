// Declares the functions of a backend's table (kvc_backend), in the namespace that includes this file. Each backend
// defines these functions.
kvc_status check_layer(kvc_backend_device* device, const kvc_backend_layer* layer, kvc_error* error);
void tiling(kvc_backend_device* device, const kvc_backend_layer* layer, kvc_backend_tiling* out);
kvc_status allocate(kvc_backend_device* device, int64_t bytes, int64_t alignment, int32_t huge, void** memory,
                    kvc_error* error);
void release(kvc_backend_device* device, void* memory, int64_t bytes);
kvc_status upload(kvc_backend_device* device, void* target, const void* source, int64_t bytes, int32_t wait,
                  void* stream, kvc_error* error);
kvc_status download(kvc_backend_device* device, void* target, const void* source, int64_t bytes, void* stream,
                    kvc_error* error);
kvc_status rope_table(kvc_backend_device* device, const kvc_backend_rope_table* args, kvc_error* error);
kvc_status rope(kvc_backend_device* device, const kvc_backend_rope* args, void* stream, kvc_error* error);
kvc_status append(kvc_backend_device* device, const kvc_backend_append* args, void* stream, kvc_error* error);
kvc_status attend(kvc_backend_device* device, const kvc_backend_attend* args, void* stream, kvc_error* error);
kvc_status copy_slots(kvc_backend_device* device, const kvc_backend_layer* layer, const kvc_backend_slot_copy* copies,
                      int64_t num_copies, void* stream, kvc_error* error);
kvc_status gather(kvc_backend_device* device, const kvc_backend_gather* args, void* stream, kvc_error* error);
kvc_status merge(kvc_backend_device* device, const kvc_backend_merge* args, void* stream, kvc_error* error);
kvc_status states(kvc_backend_device* device, const kvc_backend_states* args, void* stream, kvc_error* error);
kvc_status project(kvc_backend_device* device, const kvc_backend_project* args, void* stream, kvc_error* error);
