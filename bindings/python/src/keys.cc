#include "keys.h"

#include <nanobind/ndarray.h>

#include <cinttypes>
#include <vector>

#include "error.h"
#include "integers.h"

namespace kvcpy {
namespace {

constexpr size_t kKeyBytes = 32;

const uint8_t* data_of(const nb::bytes& bytes) { return static_cast<const uint8_t*>(bytes.data()); }

// Returns the 32 bytes of a key, a fingerprint or a hash; null for None. Checks the length, because the C function
// reads 32 bytes in any case.
const uint8_t* key_of(const char* function, nb::handle object, const char* name) {
  if (object.is_none()) return nullptr;
  if (!PyBytes_Check(object.ptr()) || PyBytes_Size(object.ptr()) != static_cast<Py_ssize_t>(kKeyBytes))
    raise(KVC_ERROR_INVALID_ARGUMENT, -1, "%s: %s must be 32 bytes", function, name);
  return reinterpret_cast<const uint8_t*>(PyBytes_AsString(object.ptr()));
}

// The token ids of a call. A contiguous int32 array of the CPU is read without a copy. Other ids are copied.
struct Tokens {
  nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> array;
  std::vector<int32_t> copy;
  const int32_t* data = nullptr;
  int64_t size = 0;

  explicit Tokens(nb::handle object) {
    if (nb::try_cast(object, array, false)) {
      data = array.data(), size = static_cast<int64_t>(array.size());
      return;
    }
    const Integers integers = integers_from_python(object);
    for (const int64_t value : integers.values) {
      if (value != static_cast<int32_t>(value))
        raise(KVC_ERROR_OUT_OF_RANGE, static_cast<int64_t>(copy.size()), "page_keys: token %" PRId64 " has no 32 bits",
              value);
      copy.push_back(static_cast<int32_t>(value));
    }
    data = copy.data(), size = integers.size();
  }
};

nb::list page_keys(nb::handle tokens, nb::handle page_size, nb::handle fingerprint, nb::bytes adapter, nb::bytes salt,
                   nb::handle salt_begin, nb::handle parent, nb::handle begin, nb::handle media) {
  const Tokens ids(tokens);
  const Media spans("page_keys", media);
  kvc_page_keys_args args;
  kvc_page_keys_args_init(&args);
  args.tokens = ids.data, args.num_tokens = ids.size, args.page_size = integer_from_python(page_size);
  args.begin = integer_from_python(begin), args.parent = key_of("page_keys", parent, "parent");
  args.fingerprint = key_of("page_keys", fingerprint, "fingerprint");
  args.adapter = data_of(adapter), args.adapter_bytes = static_cast<int64_t>(adapter.size());
  args.salt = data_of(salt), args.salt_bytes = static_cast<int64_t>(salt.size());
  args.salt_begin = integer_from_python(salt_begin);
  spans.write(&args);

  const size_t pages = args.page_size > 0 ? static_cast<size_t>(args.num_tokens / args.page_size) : 0;
  std::vector<uint8_t> keys(pages * kKeyBytes);
  call_without_gil([&](kvc_error* error) { return kvc_page_keys(&args, keys.data(), error); });
  nb::list result;
  for (size_t page = 0; page < pages; ++page) result.append(nb::bytes(&keys[page * kKeyBytes], kKeyBytes));
  return result;
}

}  // namespace

Media::Media(const char* function, nb::handle spans) {
  for (nb::handle span : spans) {
    begins.push_back(integer_from_python(span[0]));
    tokens.push_back(integer_from_python(span[1]));
    const nb::object hash = span[2];
    const uint8_t* bytes = key_of(function, hash, "the hash of a media span");
    if (bytes == nullptr) raise(KVC_ERROR_NULL_ARGUMENT, -1, "%s: the hash of a media span is None", function);
    hashes.insert(hashes.end(), bytes, bytes + kKeyBytes);
  }
}

void bind_keys(nb::module_& module) {
  module.def("page_keys", &page_keys, nb::arg("tokens"), nb::arg("page_size"), nb::arg("fingerprint").none(),
             nb::arg("adapter"), nb::arg("salt"), nb::arg("salt_begin"), nb::arg("parent").none(), nb::arg("begin"),
             nb::arg("media"));
}

}  // namespace kvcpy
