#include "cache/page_objects.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "keys/sha256.h"
#include "layer/layout_manifest.h"
#include "object/payload_sections.h"

namespace kvc {
namespace {

class VectorSink final : public ByteSink {
 public:
  explicit VectorSink(std::vector<uint8_t>* bytes) : bytes_(*bytes) {}
  Status write(std::span<const uint8_t> bytes) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return Status();
  }

 private:
  std::vector<uint8_t>& bytes_;
};

class SpanSource final : public ByteSource {
 public:
  explicit SpanSource(std::span<const uint8_t> bytes) : left_(bytes) {}
  Status read(std::span<uint8_t> bytes) override {
    if (bytes.size() > left_.size()) return Status::error(KVC_ERROR_CORRUPT, "the object ends too early");
    std::memcpy(bytes.data(), left_.data(), bytes.size());
    left_ = left_.subspan(bytes.size());
    return Status();
  }

 private:
  std::span<const uint8_t> left_;
};

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
    const ObjectHeader header = objects->header_of(page);
    objects->groups_.back().suspended_bytes = sizes_of(header, encode_object_header(header).size()).object_bytes();
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

Status PageObjects::end_read(const TierPage& page, void* stream, std::vector<uint8_t>* object) {
  KVC_TRY(copy_->end_read(page.group, contents_.data(), stream));
  if (page.held) copy_->clear_others(page.group, page.position, *page.held, contents_.data());
  const ObjectHeader header = header_of(page);
  object->clear();
  const std::vector<uint8_t> head = encode_object_header(header);
  const ObjectSizes sizes = sizes_of(header, head.size());
  object->reserve(static_cast<size_t>(sizes.object_bytes()));
  object->assign(head.begin(), head.end());
  VectorSink sink(object);
  PayloadWriter writer(&sink, sizes, section_seed(head));
  Status written = writer.write(contents_);
  if (written.ok()) written = writer.finish();
  KVC_ASSERT(written.ok() && static_cast<int64_t>(object->size()) == sizes.object_bytes(), object->size(),
             sizes.object_bytes());
  return Status();
}

Status PageObjects::check(const TierPage& page, std::span<const uint8_t> object) {
  const int64_t payload_bytes = copy_->bytes_of(page.group);
  if (static_cast<int64_t>(object.size()) < kObjectFixedBytes) {
    return Status::error(KVC_ERROR_CORRUPT, "%zu bytes are no object", object.size());
  }
  ObjectSizes sizes;
  KVC_TRY(read_object_sizes(object.first(kObjectFixedBytes), &sizes));
  if (sizes.object_bytes() != static_cast<int64_t>(object.size()) || sizes.payload_bytes != payload_bytes) {
    return Status::error(KVC_ERROR_CORRUPT, "the object has %zu bytes", object.size());
  }
  const auto head = object.first(static_cast<size_t>(sizes.header_bytes));
  // Equal headers mean the same model, layout, tokens and parent pages. So an object of another page is refused, even
  // if it has the same key.
  const std::vector<uint8_t> expected = encode_object_header(header_of(page));
  if (!std::equal(head.begin(), head.end(), expected.begin(), expected.end())) {
    return Status::error(KVC_ERROR_LAYOUT, "the object is that of another page");
  }
  SpanSource source(object.subspan(head.size()));
  PayloadReader reader(&source, sizes, section_seed(head));
  contents_.resize(static_cast<size_t>(payload_bytes));
  return reader.read(contents_);
}

Status PageObjects::write(const TierPage& page, void* stream) {
  return copy_->write(page.group, page.page, contents_.data(), stream);
}

}  // namespace kvc
