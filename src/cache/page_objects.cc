#include "cache/page_objects.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "keys/sha256.h"
#include "layer/layout_manifest.h"

namespace kvc {
namespace {

Status first_error(Status first, Status second) { return first.ok() ? std::move(second) : std::move(first); }

// Calls use(index, offset in the object, offset in the payload, bytes) for each section of the payload.
template <class Use>
Status for_each_section(const ObjectSizes& sizes, Use use) {
  int64_t offset = sizes.header_bytes;
  for (int64_t index = 0, done = 0; done < sizes.payload_bytes; ++index) {
    const int64_t bytes = std::min(sizes.section_bytes, sizes.payload_bytes - done);
    KVC_TRY(use(index, offset, done, bytes));
    done += bytes;
    offset += bytes + kChecksumBytes;
  }
  return Status();
}

// Clears a part of the payload.
void clear_payload(const ObjectSizes& sizes, const ObjectMemory& object, int64_t begin, int64_t bytes) {
  while (bytes > 0) {
    const int64_t section = begin / sizes.section_bytes;
    const int64_t count = std::min(bytes, (section + 1) * sizes.section_bytes - begin);
    object.for_each(sizes.header_bytes + begin + section * kChecksumBytes, count,
                    [](uint8_t* data, int64_t part) { std::memset(data, 0, static_cast<size_t>(part)); });
    begin += count;
    bytes -= count;
  }
}

}  // namespace

Status PageObjects::create(const Layers& layers, const PageKey& fingerprint, std::unique_ptr<PageObjects>* out) {
  std::unique_ptr<PageObjects> objects(new PageObjects(layers));
  KVC_TRY(PageCopy::create(layers, &objects->copy_));
  objects->fingerprint_ = fingerprint;
  const Geometry& geometry = layers.geometry();
  for (int32_t g = 0; g < layers.num_groups(); ++g) {
    Group group;
    group.manifest = layout_manifest(geometry, g, geometry.page_size);
    group.digest = manifest_digest(group.manifest);
    objects->groups_.push_back(std::move(group));
    TierPage page;
    page.group = g;
    const auto bytes_of = [&] {
      const ObjectHeader header = objects->header_of(page);
      return sizes_of(header, encode_object_header(header).size()).object_bytes();
    };
    objects->groups_.back().suspended_bytes = bytes_of();
    page.tokens = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(geometry.page_size));
    objects->groups_.back().page_bytes = bytes_of();
  }
  *out = std::move(objects);
  return Status();
}

kvc_tier_key PageObjects::key_of(int32_t group, const PageKey& page_key) const noexcept {
  const Group& layout = groups_[static_cast<size_t>(group)];
  kvc_tier_key key;
  static_assert(sizeof(key.bytes) == kSha256Bytes);
  Sha256 hash;
  hash.update(layout.digest.data(), layout.digest.size());
  hash.update(page_key.data(), page_key.size());
  hash.finish(key.bytes);
  return key;
}

Status PageObjects::prepare_pinned() {
  if (staging_) return Status();
  return LoadStaging::create(layers_.context(), copy_->most_bytes(), &staging_);
}

Status PageObjects::begin_read(const TierPage& page, void* stream) {
  contents_.resize(static_cast<size_t>(copy_->bytes_of(page.group)));
  return copy_->begin_read(page.group, page.page, contents_.data(), stream);
}

ObjectHeader PageObjects::header_of(const TierPage& page) const {
  const Group& group = groups_[static_cast<size_t>(page.group)];
  const int64_t page_size = layers_.geometry().page_size;
  ObjectHeader header;
  header.key = page.page_key;
  header.fingerprint = fingerprint_;
  header.manifest = group.manifest;
  header.payload_bytes = copy_->bytes_of(page.group);
  header.kind = page.tokens == nullptr ? ObjectKind::kSuspended : ObjectKind::kPage;
  if (page.tokens == nullptr) return header;
  const auto tokens =
      std::span(*page.tokens)
          .subspan(static_cast<size_t>(page.block * page_size - page.tokens_begin), static_cast<size_t>(page_size));
  header.parent = page.parent_key;
  header.token_begin = page.block * page_size;
  header.num_tokens = page_size;
  header.tokens.assign(tokens.begin(), tokens.end());
  return header;
}

ObjectSizes PageObjects::sizes_of(const ObjectHeader& header, size_t head_bytes) noexcept {
  return {static_cast<int64_t>(head_bytes), header.payload_bytes, header.section_bytes};
}

Checksum PageObjects::sum_section(const ObjectMemory& object, int64_t begin, int64_t bytes, uint64_t seed,
                                  int64_t index) {
  sum_.reset(seed + static_cast<uint64_t>(index));  // as section_checksum
  object.for_each(begin, bytes,
                  [&](const uint8_t* data, int64_t count) { sum_.add({data, static_cast<size_t>(count)}); });
  return sum_.value();
}

Status PageObjects::end_read(const TierPage& page, void* stream, const ObjectMemory& object) {
  const ObjectHeader header = header_of(page);
  const std::vector<uint8_t> head = encode_object_header(header);
  const ObjectSizes sizes = sizes_of(header, head.size());
  KVC_ASSERT(sizes.object_bytes() == object.bytes(), sizes.object_bytes(), object.bytes());
  const bool direct = object.pinned;
  if (!direct) KVC_TRY(copy_->end_read(page.group, contents_.data(), stream));
  Status copied = for_each_section(sizes, [&](int64_t, int64_t offset, int64_t done, int64_t bytes) {
    Status status;
    object.for_each(offset, bytes, [&](uint8_t* data, int64_t count) {
      if (!direct) {
        std::memcpy(data, contents_.data() + done, static_cast<size_t>(count));
      } else if (status.ok()) {
        status = copy_->copy_out(done, data, count, stream);
      }
      done += count;
    });
    return status;
  });
  // Waits also after an error, because copies may be in flight.
  if (direct) copied = first_error(std::move(copied), copy_->wait(stream));
  KVC_TRY(std::move(copied));
  object.write(0, head.data(), sizes.header_bytes);
  if (page.held) {
    copy_->for_each_other(page.group, page.position, *page.held,
                          [&](int64_t begin, int64_t bytes) { clear_payload(sizes, object, begin, bytes); });
  }
  return for_each_section(sizes, [&](int64_t index, int64_t offset, int64_t, int64_t bytes) {
    const Checksum sum = sum_section(object, offset, bytes, section_seed(head), index);
    object.write(offset + bytes, sum.data(), kChecksumBytes);
    return Status();
  });
}

Status PageObjects::check(const TierPage& page, const ObjectMemory& object) {
  const int64_t payload_bytes = copy_->bytes_of(page.group), object_bytes = object.bytes();
  if (object_bytes < kObjectFixedBytes) {
    return Status::error(KVC_ERROR_CORRUPT, "%" PRId64 " bytes are no object", object_bytes);
  }
  std::vector<uint8_t> head(kObjectFixedBytes);
  object.read(0, head.data(), kObjectFixedBytes);
  ObjectSizes sizes;
  KVC_TRY(read_object_sizes(head, &sizes));
  if (sizes.object_bytes() != object_bytes || sizes.payload_bytes != payload_bytes) {
    return Status::error(KVC_ERROR_CORRUPT, "the object has %" PRId64 " bytes", object_bytes);
  }
  head.resize(static_cast<size_t>(sizes.header_bytes));
  object.read(0, head.data(), sizes.header_bytes);
  // Equal headers mean the same model, layout, tokens and parent pages. So an object of another page is refused, even
  // if it has the same key.
  if (head != encode_object_header(header_of(page))) {
    return Status::error(KVC_ERROR_LAYOUT, "the object is that of another page");
  }
  staged_ = object.pinned;
  if (staged_) {
    KVC_TRY(staging_->begin());
  } else {
    contents_.resize(static_cast<size_t>(payload_bytes));
  }
  // The device copies a section while the host checks it. What it has copied is used only if all sections are right.
  Status checked = for_each_section(sizes, [&](int64_t index, int64_t offset, int64_t done, int64_t bytes) {
    Status status;
    object.for_each(offset, bytes, [&](const uint8_t* data, int64_t count) {
      if (!staged_) {
        std::memcpy(contents_.data() + done, data, static_cast<size_t>(count));
      } else if (status.ok()) {
        status = staging_->copy_in(done, data, count);
      }
      done += count;
    });
    KVC_TRY(std::move(status));
    Checksum expected;
    object.read(offset + bytes, expected.data(), kChecksumBytes);
    if (sum_section(object, offset, bytes, section_seed(head), index) == expected) return Status();
    return Status::error(KVC_ERROR_CORRUPT, "section %" PRId64 " of the payload does not have its checksum", index);
  });
  // Waits also after an error, because copies may be in flight.
  return staged_ ? first_error(std::move(checked), staging_->wait()) : std::move(checked);
}

Status PageObjects::write(const TierPage& page, void* stream) {
  if (!staged_) return copy_->write(page.group, page.page, contents_.data(), stream);
  Status written = copy_->write_from(page.group, page.page, staging_->data(), stream);
  // Ends the use also after an error, because a part of the write may be enqueued.
  return first_error(std::move(written), staging_->end(stream));
}

}  // namespace kvc
