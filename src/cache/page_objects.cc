#include "cache/page_objects.h"

#include <algorithm>
#include <cstring>
#include <numeric>

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

int64_t page_rows(const Geometry& geometry, int32_t group) {
  return geometry.store.groups[static_cast<size_t>(group)].rules.rows_of(geometry.page_size);
}

}  // namespace

Status PageObjects::create(const Layers& layers, const PageKey& fingerprint, std::unique_ptr<PageObjects>* out) {
  std::unique_ptr<PageObjects> objects(new PageObjects(layers));
  KVC_TRY(RowCopy::create(layers, &objects->rows_));
  objects->fingerprint_ = fingerprint;
  const Geometry& geometry = layers.geometry();
  for (int32_t g = 0; g < layers.num_groups(); ++g) {
    Group group;
    group.manifest = layout_manifest(geometry, g, geometry.page_size);
    group.digest = manifest_digest(group.manifest);
    group.states = geometry.store.groups[static_cast<size_t>(g)].rules.holds_state();
    group.payload_bytes =
        group.states ? RowCopy::state_bytes(layers, g) : page_rows(geometry, g) * RowCopy::token_bytes(layers, g);
    objects->groups_.push_back(std::move(group));
  }
  objects->slots_.resize(static_cast<size_t>(geometry.page_size));
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

std::span<const int64_t> PageObjects::slots_of(const TierPage& page) {
  const int64_t rows = page_rows(layers_.geometry(), page.group);
  const auto slots = std::span(slots_).first(static_cast<size_t>(rows));
  std::iota(slots.begin(), slots.end(), page.page * rows);
  return slots;
}

Status PageObjects::read(const TierPage& page) {
  const Group& group = groups_[static_cast<size_t>(page.group)];
  contents_.resize(static_cast<size_t>(group.payload_bytes));
  return group.states ? rows_->read_states(page.group, page.page, contents_.data(), nullptr)
                      : rows_->read_tokens(page.group, slots_of(page), contents_.data(), nullptr);
}

ObjectHeader PageObjects::header_of(const TierPage& page) const {
  const Group& group = groups_[static_cast<size_t>(page.group)];
  const int64_t page_size = layers_.geometry().page_size;
  ObjectHeader header;
  header.key = page.page_key;
  header.fingerprint = fingerprint_;
  header.manifest = group.manifest;
  header.payload_bytes = group.payload_bytes;
  header.kind = page.tokens == nullptr ? ObjectKind::kSuspended : ObjectKind::kPage;
  if (page.tokens == nullptr) return header;
  const auto tokens =
      std::span(*page.tokens).subspan(static_cast<size_t>(page.block * page_size), static_cast<size_t>(page_size));
  header.parent = page.parent_key;
  header.token_begin = page.block * page_size;
  header.num_tokens = page_size;
  header.tokens.assign(tokens.begin(), tokens.end());
  return header;
}

void PageObjects::encode(const TierPage& page, std::vector<uint8_t>* object) const {
  const ObjectHeader header = header_of(page);
  object->clear();
  const std::vector<uint8_t> head = encode_object_header(header);
  const ObjectSizes sizes{static_cast<int64_t>(head.size()), header.payload_bytes, header.section_bytes};
  object->reserve(static_cast<size_t>(sizes.object_bytes()));
  object->assign(head.begin(), head.end());
  VectorSink sink(object);
  PayloadWriter writer(&sink, sizes, section_seed(head));
  Status written = writer.write(contents_);
  if (written.ok()) written = writer.finish();
  KVC_ASSERT(written.ok() && static_cast<int64_t>(object->size()) == sizes.object_bytes(), object->size(),
             sizes.object_bytes());
}

Status PageObjects::write(const TierPage& page, std::span<const uint8_t> object) {
  const Group& group = groups_[static_cast<size_t>(page.group)];
  if (static_cast<int64_t>(object.size()) < kObjectFixedBytes) {
    return Status::error(KVC_ERROR_CORRUPT, "%zu bytes are no object", object.size());
  }
  ObjectSizes sizes;
  KVC_TRY(read_object_sizes(object.first(kObjectFixedBytes), &sizes));
  if (sizes.object_bytes() != static_cast<int64_t>(object.size()) || sizes.payload_bytes != group.payload_bytes) {
    return Status::error(KVC_ERROR_CORRUPT, "the object has %zu bytes", object.size());
  }
  const auto head = object.first(static_cast<size_t>(sizes.header_bytes));
  // Equal headers name the same model, layout, tokens and parents. So a collision of keys is a miss too.
  const std::vector<uint8_t> expected = encode_object_header(header_of(page));
  if (!std::equal(head.begin(), head.end(), expected.begin(), expected.end())) {
    return Status::error(KVC_ERROR_LAYOUT, "the object is that of another page");
  }
  SpanSource source(object.subspan(head.size()));
  PayloadReader reader(&source, sizes, section_seed(head));
  contents_.resize(static_cast<size_t>(group.payload_bytes));
  KVC_TRY(reader.read(contents_));
  return group.states ? rows_->write_states(page.group, page.page, contents_.data(), nullptr)
                      : rows_->write_tokens(page.group, slots_of(page), contents_.data(), nullptr);
}

}  // namespace kvc
