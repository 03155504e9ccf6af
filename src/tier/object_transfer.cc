// ObjectFolder: writes and reads the bytes of an object.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tier/object_folder.h"
#include "tier/object_name.h"

namespace kvc {
namespace {

ObjectFolder::Outcome failed(int64_t error) { return {KVC_TIER_FAILED, static_cast<int32_t>(-error), false}; }

// A position in the buffers of an item. All buffers together are treated as one sequence of bytes.
class BufferCursor {
 public:
  explicit BufferCursor(const kvc_tier_item& item) : buffer_(item.buffers) {}

  // Advances by `bytes` bytes, and calls move(data, bytes) for each contiguous part of them.
  template <typename Move>
  void next(int64_t bytes, Move move) {
    while (bytes > 0) {
      const int64_t here = std::min(bytes, buffer_->bytes - at_);
      if (here > 0) move(static_cast<uint8_t*>(buffer_->data) + at_, here);
      bytes -= here;
      at_ += here;
      if (at_ == buffer_->bytes) ++buffer_, at_ = 0;
    }
  }

 private:
  const kvc_tier_buffer* buffer_;
  int64_t at_ = 0;
};

// The part of the bytes [offset, offset + bytes) of a file that belongs to the payload. The member `begin` is the
// offset of this part within these bytes, and the member `bytes` is its length.
struct PayloadPart {
  PayloadPart(int64_t offset, int64_t bytes, int64_t payload_bytes)
      : begin(std::max<int64_t>(0, kFrameHeaderBytes - offset)),
        bytes(std::max<int64_t>(0, std::min(bytes, kFrameHeaderBytes + payload_bytes - offset) - begin)) {}
  int64_t begin, bytes;
};

}  // namespace

int ObjectFolder::write_frame(int fd, const kvc_tier_item& item, Bounce& bounce) {
  RunningChecksum& sum = bounce.checksum();
  sum.reset();
  BufferCursor(item).next(item.bytes,
                          [&](const uint8_t* data, int64_t bytes) { sum.add({data, static_cast<size_t>(bytes)}); });
  BufferCursor cursor(item);
  const int64_t total = frame_bytes(item.bytes);
  for (int64_t offset = 0; offset < total;) {
    const int64_t chunk = std::min(Bounce::kBytes, total - offset);
    const PayloadPart part(offset, chunk, item.bytes);
    if (offset == 0) encode_frame_header(item.key, item.bytes, sum.value(), bounce.data());
    uint8_t* to = bounce.data() + part.begin;
    cursor.next(part.bytes, [&](const uint8_t* data, int64_t bytes) {
      std::memcpy(to, data, static_cast<size_t>(bytes));
      to += bytes;
    });
    std::memset(to, 0, static_cast<size_t>(bounce.data() + chunk - to));
    for (int64_t done = 0; done < chunk;) {
      const int64_t put = ops_.write_at(fd, bounce.data() + done, chunk - done, offset + done);
      if (put <= 0) return put < 0 ? static_cast<int>(put) : -ENOSPC;
      done += put;
    }
    offset += chunk;
  }
  return 0;
}

ObjectFolder::Outcome ObjectFolder::write(const kvc_tier_item& item, int64_t stamp_ns, Bounce& bounce,
                                          std::string* name) {
  if (read_only_) return failed(-EROFS);
  const int fd = open_temporary(stamp_ns, name);
  if (fd < 0) return failed(fd);
  int error = write_frame(fd, item, bounce);
  if (error == 0) error = ops_.set_stamp(fd, stamp_ns);
  if (error == 0 && sync_ != DiskSync::kNever) error = ops_.sync_data(fd);
  ops_.close(fd);
  if (error == 0) return {};
  discard(*name);
  return failed(error);
}

ObjectFolder::Outcome ObjectFolder::publish(const std::string& name, const kvc_tier_key& key, int64_t payload_bytes) {
  const std::string to = object_name(key, payload_bytes);
  const std::string folder = folder_name(key.bytes[0]);
  int error = ops_.rename_at(root_, name.c_str(), to.c_str());
  if (error == -ENOENT) {
    error = ops_.make_folder_at(root_, folder.c_str());
    if (error == 0 && sync_ == DiskSync::kFull) error = ops_.sync_folder(root_);
    if (error == 0 || error == -EEXIST) error = ops_.rename_at(root_, name.c_str(), to.c_str());
  }
  if (error < 0) {
    discard(name);
    return failed(error);
  }
  if (sync_ == DiskSync::kFull) error = sync_name(folder.c_str());
  return error < 0 ? failed(error) : Outcome{};
}

int ObjectFolder::sync_name(const char* folder) {
  const int fd = ops_.open_at(root_, folder, kOpenRead | kOpenFolder, 0);
  if (fd < 0) return fd;
  const int result = ops_.sync_folder(fd);
  ops_.close(fd);
  return result;
}

ObjectFolder::Outcome ObjectFolder::read(const kvc_tier_item& item, int64_t stamp_ns, Bounce& bounce) {
  const std::string name = object_name(item.key, item.bytes);
  Outcome outcome;
  const int fd = open_object(name, &outcome);
  return fd < 0 ? outcome : read_opened(fd, name, item, stamp_ns, bounce.data(), {}, bounce.checksum());
}

int ObjectFolder::open_object(const std::string& name, Outcome* outcome) {
  const int flags = kOpenRead | kOpenPlain | (direct_ ? kOpenDirect : 0);
  int fd = ops_.open_at(root_, name.c_str(), flags, 0);
  if (fd == -EINVAL && direct_) fd = ops_.open_at(root_, name.c_str(), flags & ~kOpenDirect, 0);
  if (fd >= 0) return fd;
  *outcome = says_missing(fd)     ? Outcome{KVC_TIER_MISS, 0, false}
             : says_not_plain(fd) ? Outcome{KVC_TIER_MISS, 0, true}
                                  : failed(fd);
  return -1;
}

bool ObjectFolder::is_readable(int fd, const kvc_tier_item& item) {
  FileStatus status;
  return ops_.status(fd, &status) == 0 && status.regular && status.bytes == frame_bytes(item.bytes);
}

ObjectFolder::Outcome ObjectFolder::read_opened(int fd, const std::string& name, const kvc_tier_item& item,
                                                int64_t stamp_ns, uint8_t* memory, const Begun& begun,
                                                RunningChecksum& sum) {
  Outcome outcome = read_frame(fd, item, memory, begun, sum);
  // The file may have been evicted and recycled while it was read. Then it has the bytes of another object, and is not
  // damaged.
  FileStatus read, named;
  if (outcome.damaged && ops_.status(fd, &read) == 0 &&
      (ops_.status_at(root_, name.c_str(), &named) != 0 || named.inode != read.inode)) {
    outcome = {KVC_TIER_MISS, 0, false};
  }
  if (outcome.result == KVC_TIER_OK && stamp_ns > 0) ops_.set_stamp(fd, stamp_ns);  // a failure is ignored
  ops_.close(fd);
  return outcome;
}

ObjectFolder::Outcome ObjectFolder::read_frame(int fd, const kvc_tier_item& item, uint8_t* memory, const Begun& begun,
                                               RunningChecksum& sum) {
  constexpr Outcome kDamaged = {KVC_TIER_MISS, 0, true};
  const int64_t total = frame_bytes(item.bytes);
  if (!begun.checked) {
    FileStatus status;
    if (const int error = ops_.status(fd, &status); error < 0) return failed(error);
    if (!status.regular || status.bytes != total) return kDamaged;
  }
  int64_t had = begun.had;
  if (had < 0) return {KVC_TIER_FAILED, static_cast<int32_t>(-had), says_damaged(had)};
  sum.reset();
  Checksum expected{};
  BufferCursor cursor(item);
  for (int64_t offset = 0; offset < total;) {
    const int64_t chunk = std::min(Bounce::kBytes, total - offset);
    for (int64_t done = std::min(had, chunk); done < chunk;) {
      const int64_t got = ops_.read_at(fd, memory + done, chunk - done, offset + done);
      if (got < 0) return {KVC_TIER_FAILED, static_cast<int32_t>(-got), says_damaged(got)};
      if (got == 0) return kDamaged;
      done += got;
    }
    had = 0;
    if (offset == 0 && !check_frame_header(memory, item.key, item.bytes, &expected)) return kDamaged;
    const PayloadPart part(offset, chunk, item.bytes);
    const uint8_t* from = memory + part.begin;
    sum.add({from, static_cast<size_t>(part.bytes)});
    cursor.next(part.bytes, [&](uint8_t* data, int64_t bytes) {
      std::memcpy(data, from, static_cast<size_t>(bytes));
      from += bytes;
    });
    offset += chunk;
  }
  return sum.value() == expected ? Outcome{} : kDamaged;
}

}  // namespace kvc
