// Fuzz target of the disk tier's files: bytes become the file of an object, or the name of a file.
//
// The first byte chooses how the file is made.
//   raw      the input is the file
//   header   the header's checksum is made right, so that the other fields are reached
//   whole    a whole object, in which the input then replaces some bytes
// The system calls are replaced: the file is in memory, and the input chooses how many bytes a read gives. A load must
// give exactly the payload of the file if every byte of the header is right, and miss otherwise.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bytes.h"
#include "reached.h"
#include "tier/object_folder.h"
#include "tier/object_name.h"

namespace fuzz {

namespace {

[[noreturn]] void wrong(const char *what) {
  std::fprintf(stderr, "fuzz_tier: %s\n", what);
  std::abort();
}

// A directory whose only object is `file`.
class MemoryOps : public kvc::FileOps {
 public:
  std::vector<uint8_t> file;
  int64_t read_bytes = 0;  // of one read; 0: as many as fit
  bool reading = false;    // the directory is open

  int open_at(int, const char *, int flags, mode_t) override {
    return reading || (flags & (kvc::kOpenCreate | kvc::kOpenNew)) == 0 ? 1000 : -EROFS;
  }
  int close(int) override { return 0; }
  int64_t read_at(int, void *data, int64_t bytes, int64_t offset) override {
    static const char marker[] = "libkvcache disk tier, version 1\n";
    const uint8_t *from = reading ? file.data() : reinterpret_cast<const uint8_t *>(marker);
    const int64_t size = reading ? static_cast<int64_t>(file.size()) : static_cast<int64_t>(sizeof marker) - 1;
    int64_t here = std::clamp<int64_t>(size - offset, 0, bytes);
    if (reading && read_bytes > 0) here = std::min(here, read_bytes);
    if (here > 0) std::memcpy(data, from + offset, static_cast<size_t>(here));
    return here;
  }
  int64_t write_at(int, const void *, int64_t, int64_t) override { return -EROFS; }
  int rename_at(int, const char *, const char *) override { return -EROFS; }
  int unlink_at(int, const char *) override { return -EROFS; }
  int make_folder_at(int, const char *) override { return -EROFS; }
  int set_stamp(int, int64_t) override { return -EROFS; }
  int status(int, kvc::FileStatus *status) override {
    *status = {static_cast<int64_t>(file.size()), 1, true};
    return 0;
  }
  int list(int, const std::function<void(const char *)> &) override { return 0; }
};

// Whether a file is whole, by a second implementation of the format.
bool is_object(const std::vector<uint8_t> &file, const kvc_tier_key &key, int64_t bytes) {
  if (static_cast<int64_t>(file.size()) != (128 + bytes + 4095) / 4096 * 4096) return false;
  uint8_t expected[112] = {'k', 'v', 'c', 'd', 'i', 's', 'k', '1', 1, 0, 0, 0, 128, 0, 0, 0};
  std::memcpy(expected + 16, key.bytes, 32);
  std::memcpy(expected + 48, &bytes, 8);
  const kvc::Checksum payload = kvc::checksum_of({file.data() + 128, static_cast<size_t>(bytes)});
  std::memcpy(expected + 64, payload.data(), 16);
  const kvc::Checksum header = kvc::checksum_of(expected);
  return std::memcmp(file.data(), expected, 112) == 0 && std::memcmp(file.data() + 112, header.data(), 16) == 0;
}

// Checks that an object has no second name.
void check_name(Bytes in) {
  const int folder = in.byte();
  std::string name;
  while (!in.empty()) name += static_cast<char>(in.byte());
  name = name.c_str();
  kvc_tier_key key;
  int64_t bytes;
  const bool is_name = kvc::parse_object_name(folder, name.c_str(), &key, &bytes);
  reached["name"].count(is_name);
  if (!is_name) return;
  if (kvc::object_name(key, bytes) != kvc::folder_name(folder) + "/" + name) wrong("two names of one object");
}

void check_file(Bytes in, int mode) {
  MemoryOps ops;
  std::unique_ptr<kvc::ObjectFolder> folder;
  if (!kvc::ObjectFolder::open("folder", kvc::DiskSync::kNever, ops, &folder).ok())
    wrong("the directory does not open");
  ops.reading = true;
  ops.read_bytes = in.byte() * int64_t{16};
  const int64_t bytes = in.byte() * int64_t{40} + in.byte();
  kvc_tier_key key;
  for (uint8_t &byte : key.bytes) byte = in.byte();
  if (mode == 2) {
    ops.file.resize(static_cast<size_t>(kvc::frame_bytes(bytes)));
    const uint8_t fill = in.byte();
    for (int64_t i = 0; i < bytes; ++i) ops.file[static_cast<size_t>(128 + i)] = static_cast<uint8_t>(i * fill);
    const auto payload = std::span(ops.file).subspan(128, static_cast<size_t>(bytes));
    kvc::encode_frame_header(key, bytes, kvc::checksum_of(payload), ops.file.data());
    while (!in.empty()) {
      const size_t at = static_cast<size_t>(in.byte()) << 8 | in.byte();
      const uint8_t value = in.byte();
      if (at < ops.file.size())
        ops.file[at] = value;
      else
        ops.file.resize(ops.file.size() + at % 3);
    }
  } else {
    while (!in.empty()) ops.file.push_back(in.byte());
    if (mode == 1) ops.file.resize(static_cast<size_t>(kvc::frame_bytes(bytes)));
    if (mode == 1) {
      const kvc::Checksum sum = kvc::checksum_of({ops.file.data(), 112});
      std::memcpy(ops.file.data() + 112, sum.data(), sum.size());
    }
  }
  std::vector<uint8_t> loaded(static_cast<size_t>(bytes), 0xa5);
  const kvc_tier_buffer halves[2] = {{loaded.data(), bytes / 2}, {loaded.data() + bytes / 2, bytes - bytes / 2}};
  const kvc_tier_item item = {key, halves, 2, 0, bytes};
  static kvc::Bounce bounce;
  const int32_t result = folder->read(item, 0, bounce).result;
  const bool is_whole = is_object(ops.file, key, bytes);
  if (result != (is_whole ? KVC_TIER_OK : KVC_TIER_MISS))
    wrong(is_whole ? "a whole object misses" : "no object is loaded");
  if (is_whole && bytes > 0 && std::memcmp(loaded.data(), ops.file.data() + 128, loaded.size()) != 0)
    wrong("other bytes");
  reached["load"].count(is_whole);
}

}  // namespace
}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::Bytes in(data, size);
  const int mode = in.byte() % 4;
  if (mode == 3)
    fuzz::check_name(in);
  else
    fuzz::check_file(in, mode);
  return 0;
}
