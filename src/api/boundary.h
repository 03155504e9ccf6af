// The C boundary: handles, error translation, extensible structs. Every exported function is a thin call through here.
//
// No exception crosses the boundary. A failed allocation becomes KVC_ERROR_OUT_OF_MEMORY, and any other exception
// becomes KVC_ERROR_INTERNAL.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "api/first_sizes.h"
#include "base/read_once.h"
#include "base/status.h"
#include "cache/cache.h"
#include "context/context.h"
#include "kvcache.h"
#include "stateless/scratch.h"

struct kvc_context {
  std::shared_ptr<kvc::Context> context;
  kvc::StatelessScratches stateless;
};

struct kvc_cache {
  std::unique_ptr<kvc::Cache> cache;
};

namespace kvc::api {

// Runs `body` and writes its failure to `error`.
template <class Body>
kvc_status call(const char* function, kvc_error* error, Body body) noexcept {
  // An error struct of another size gets no message.
  if (error != nullptr && error->struct_size != sizeof(kvc_error)) return KVC_ERROR_STRUCT_SIZE;
  const auto report = [&](const Status& status) {
    if (!status.ok() && error != nullptr) status.write_to(function, error);
    return status.code();
  };
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report(Status::error(KVC_ERROR_OUT_OF_MEMORY, "the host is out of memory"));
  } catch (...) {
    return report(Status::error(KVC_ERROR_INTERNAL, "an unexpected exception"));
  }
}

inline Status check_not_null(const void* pointer, const char* name) {
  return pointer != nullptr ? Status() : Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL", name);
}

// Runs a call whose index arrays may be on a device. If the device has found a bad value in an array of an earlier
// call, returns this error and does not run `body`.
template <class Body>
kvc_status context_call(const char* function, kvc_context* context, kvc_error* error, Body body) noexcept {
  return call(function, error, [&]() -> Status {
    KVC_TRY(check_not_null(context, "context"));
    KVC_TRY(context->context->check_earlier());
    return body(*context);
  });
}

// Runs a call that reads a cache and uses no device. The call also works after the device has failed permanently.
template <class Body>
kvc_status audit_call(const char* function, kvc_cache* cache, kvc_error* error, Body body) noexcept {
  return call(function, error, [&]() -> Status {
    KVC_TRY(check_not_null(cache, "cache"));
    return body(*cache->cache);
  });
}

// Runs any other call on a cache, unless the cache is no longer usable. Debug builds check the cache's invariants after
// each call.
template <class Body>
kvc_status cache_call(const char* function, kvc_cache* cache, kvc_error* error, Body body) noexcept {
  return call(function, error, [&]() -> Status {
    KVC_TRY(check_not_null(cache, "cache"));
    KVC_TRY(cache->cache->core.check_usable());
    Status status = body(*cache->cache);
#ifdef KVCACHE_CHECK_INVARIANTS
    KVC_TRY(cache->cache->reports.check_invariants());
#endif
    return status;
  });
}

// Checks that n is not negative and that, if n > 0, `array` is not NULL.
inline Status check_array(int64_t n, const void* array, const char* name) {
  if (n < 0) return Status::error(KVC_ERROR_INVALID_ARGUMENT, "n %" PRId64 " is negative", n);
  return n == 0 ? Status() : check_not_null(array, name);
}

// Checks that an array that a call writes does not overlap an array that it reads. Both have n elements. The test
// compares distances, because the end of an array with a wrong n may lie outside the address space.
template <class In, class Out>
Status check_disjoint(int64_t n, const In* in, const char* in_name, const Out* out, const char* out_name) {
  const auto i = reinterpret_cast<uintptr_t>(in);
  const auto o = reinterpret_cast<uintptr_t>(out);
  const auto count = static_cast<uintptr_t>(n);
  const bool disjoint = i <= o ? (o - i) / sizeof(In) >= count : (i - o) / sizeof(Out) >= count;
  if (n == 0 || in == nullptr || disjoint) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s[%" PRId64 "] overlaps %s[%" PRId64 "]", out_name, n, in_name, n);
}

template <class T>
std::span<T> span_of(T* data, int64_t n) {
  return {data, static_cast<size_t>(n)};
}

// The largest size of a struct of any version, in bytes. A larger struct_size means that the struct was never
// initialised.
inline constexpr uint32_t kMaxStructSize = 4096;

// Checks that `size` may be the struct_size of some version of T.
template <class T>
Status check_size(uint32_t size, const char* name) {
  if (size >= kFirstSize<T> && size <= kMaxStructSize && size % 8 == 0) return Status();
  return Status::error(KVC_ERROR_STRUCT_SIZE, "%s has struct_size %u, not %u: initialise it with its kvc_*_init", name,
                       size, static_cast<uint32_t>(sizeof(T)));
}

// Checks that `in` may be a T of some version.
template <class T>
Status check_struct_size(const T* in, const char* name) {
  KVC_TRY(check_not_null(in, name));
  return check_size<T>(read_once(&in->struct_size), name);
}

// Copies the fields of an input struct of `size` bytes. Fields that the struct lacks become 0. Fields that this
// library's version lacks must be 0.
template <class T>
Status read_sized(const T* in, uint32_t size, const char* name, T* out) {
  KVC_TRY(check_size<T>(size, name));
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  for (uint32_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return Status::error(KVC_ERROR_UNSUPPORTED, "%s has a field at offset %u that this library (%s) does not know",
                           name, i, kvc_version());
    }
  }
  std::memset(static_cast<void*>(out), 0, sizeof(T));
  std::memcpy(static_cast<void*>(out), in, std::min<size_t>(size, sizeof(T)));
  out->struct_size = size;
  return Status();
}

template <class T>
Status read_struct(const T* in, const char* name, T* out) {
  KVC_TRY(check_not_null(in, name));
  return read_sized(in, read_once(&in->struct_size), name, out);
}

// Reads an array of extensible structs. The stride of the array is the struct_size of its first element. All elements
// must have this struct_size.
template <class T>
Status read_array(const T* items, int64_t n, const char* name, std::vector<T>* out) {
  KVC_TRY(check_array(n, items, name));
  out->resize(static_cast<size_t>(n));
  const auto* bytes = reinterpret_cast<const unsigned char*>(items);
  const uint32_t stride = n == 0 ? 0 : read_once(&items->struct_size);
  for (int64_t i = 0; i < n; ++i) {
    const auto* item = reinterpret_cast<const T*>(bytes + i * stride);
    const uint32_t size = i == 0 ? stride : read_once(&item->struct_size);
    if (size != stride) {
      return Status::error(KVC_ERROR_STRUCT_SIZE, "%s[%" PRId64 "] has struct_size %u, and %s[0] %u", name, i, size,
                           name, stride)
          .at(i);
    }
    if (Status status = read_sized(item, size, name, &(*out)[static_cast<size_t>(i)]); !status.ok())
      return std::move(status).at(i);
  }
  return Status();
}

// Writes `value` to a struct whose size the caller has set. Fields that only the caller's version has keep their
// values.
template <class T>
void write_struct(const T& value, T* out) {
  const uint32_t size = out->struct_size;
  std::memcpy(static_cast<void*>(out), &value, std::min<size_t>(size, sizeof(T)));
  out->struct_size = size;
}

// Copies a text and its NUL to a caller's buffer. If capacity is 0, only writes the length.
inline Status write_text(const std::string& text, char* buffer, int64_t capacity, int64_t* length) {
  const auto size = static_cast<int64_t>(text.size());
  if (length != nullptr) *length = size;
  if (capacity == 0) return Status();
  if (capacity <= size) {
    return Status::error(KVC_ERROR_BUFFER_TOO_SMALL, "%" PRId64 " bytes do not fit in a capacity of %" PRId64, size + 1,
                         capacity)
        .missing(size + 1, capacity);
  }
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return Status();
}

inline Status check_buffer(const void* buffer, int64_t capacity, const char* name) {
  if (capacity < 0) return Status::error(KVC_ERROR_INVALID_ARGUMENT, "capacity %" PRId64 " is negative", capacity);
  return capacity == 0 ? Status() : check_not_null(buffer, name);
}

}  // namespace kvc::api
