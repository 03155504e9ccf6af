#include "context/fake_backend.h"

#include <cstdio>
#include <cstring>
#include <new>

struct kvc_backend_device {
  const char* simd;
};

namespace kvc::testing {
namespace {

constexpr const char* kNames[] = {"portable", "wide"};
constexpr std::align_val_t kAlignment{4096};

kvc_status fail(kvc_error* error, kvc_status status, const char* message) {
  error->code = status;
  std::snprintf(error->message, sizeof error->message, "%s", message);
  return status;
}

kvc_status open(const kvc_backend_open_args* args, kvc_backend_device** device, kvc_error* error) {
  FakeBackend& fake = FakeBackend::get();
  if (fake.open_status != KVC_OK) return fail(error, fake.open_status, "the fake does not open");
  const char* simd = args->simd ? nullptr : kNames[1];
  for (const char* name : kNames) {
    if (args->simd && std::strcmp(args->simd, name) == 0) simd = name;
  }
  if (!simd) return fail(error, KVC_ERROR_UNSUPPORTED, "no such name");
  fake.host = *args->host;
  fake.devices_open++;
  *device = new kvc_backend_device{simd};
  return KVC_OK;
}

void close(kvc_backend_device* device) {
  FakeBackend::get().devices_open--;
  delete device;
}

int32_t implementations(kvc_backend_device*, const char** names, int32_t capacity) {
  for (int32_t i = 0; i < 2 && i < capacity; i++) names[i] = kNames[i];
  return 2;
}

const char* implementation(kvc_backend_device* device) { return device->simd; }

kvc_status allocate(kvc_backend_device*, int64_t bytes, int64_t, int32_t, void** memory, kvc_error* error) {
  FakeBackend& fake = FakeBackend::get();
  if (fake.allocate_status != KVC_OK) return fail(error, fake.allocate_status, "the fake has no memory");
  *memory = ::operator new(bytes, kAlignment);
  std::memset(*memory, 0, bytes);
  fake.bytes_held += bytes;
  return KVC_OK;
}

void release(kvc_backend_device*, void* memory, int64_t bytes) {
  FakeBackend::get().bytes_held -= bytes;
  ::operator delete(memory, kAlignment);
}

}  // namespace

FakeBackend& FakeBackend::get() {
  static FakeBackend fake;
  return fake;
}

}  // namespace kvc::testing

extern "C" const kvc_backend* kvc_cpu_backend_get(uint32_t version) {
  using namespace kvc::testing;
  static kvc_backend table;
  const FakeBackend& fake = FakeBackend::get();
  if (!fake.served || version != KVC_BACKEND_VERSION) return nullptr;
  table = kvc_backend{};
  table.struct_size = sizeof table;
  table.version = fake.version;
  table.device_type = kDLCPU;
  table.name = "cpu";
  table.open = open;
  table.close = close;
  table.implementations = implementations;
  table.implementation = implementation;
  table.allocate = allocate;
  table.release = release;
  return &table;
}
