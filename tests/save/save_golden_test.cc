// Files of the release 0.1 in golden/: this library writes the same bytes, and reads them.
// KVC_WRITE_GOLDEN=1 writes them anew; a released file never changes.
#include <cstdlib>

#include "save_fixture.h"

namespace kvt {
namespace {

Bytes golden(const char *name, const Bytes &now) {
  const std::string path = std::string(KVC_GOLDEN_FOLDER) + "/" + name;
  if (std::getenv("KVC_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char *>(now.data()), static_cast<std::streamsize>(now.size()));
  }
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(SaveGolden, AMixtureOfGroups) {
  Chat a;
  const kvc_seq saved = a.talk();
  std::vector<int32_t> tokens(23);
  for (size_t i = 0; i < tokens.size(); i++) tokens[i] = static_cast<int32_t>(i * 1000) - 3;
  const Bytes now = a.save(saved, tokens), old = golden("mixture-0.1.kvc", now);
  EXPECT_TRUE(now == old) << "the format has changed, or the file is missing";
  Chat b;
  EXPECT_EQ(b.steps(b.load(old), 5), a.steps(saved, 5));
}

TEST(SaveGolden, AStreamOfQuantisedRows) {
  CacheSpec spec = World::default_spec();
  spec.streaming = true;
  spec.layers = {LayerSpec{0, 4, 2, 8, 0, DType::kI8}, LayerSpec{1, 2, 1, 8, 6, DType::kF16}};
  World a(spec);
  const int64_t sinks = 2, window = 9;
  ASSERT_EQ(kvc_seq_set_streaming(a.cache, 1, &a.seq, &sinks, &window, 0, nullptr), KVC_OK);
  Memory memory;
  const kvc_save_args args = save_args(&memory);
  ASSERT_EQ(kvc_seq_save(a.cache, a.seq, &args, nullptr, nullptr), KVC_OK);
  const Bytes old = golden("stream-0.1.kvc", memory.data);
  EXPECT_TRUE(memory.data == old) << "the format has changed, or the file is missing";
  World b(spec);
  Memory source, again;
  source.data = old;
  const kvc_load_args load = load_args(&source);
  kvc_seq loaded = 0;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_seq_load(b.cache, &load, nullptr, &loaded, nullptr, &error), KVC_OK) << error.message;
  const kvc_save_args save = save_args(&again);
  ASSERT_EQ(kvc_seq_save(b.cache, loaded, &save, nullptr, nullptr), KVC_OK);
  EXPECT_TRUE(again.data == old);
}

}  // namespace
}  // namespace kvt
