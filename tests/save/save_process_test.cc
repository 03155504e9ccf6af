// A process that is killed while it saves.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "save_fixture.h"

namespace kvt {
namespace {

TEST(Save, AKilledSaveLeavesTheOldFile) {
  const Folder folder;
  const std::string path = folder.file("chat.kvc");
  Chat a;
  const kvc_seq saved = a.talk();
  kvc_save_args save;
  kvc_save_args_init(&save);
  save.path = path.c_str();
  save.section_bytes = 4096;
  ASSERT_EQ(kvc_seq_save(a.cache, saved, &save, nullptr, nullptr), KVC_OK);
  const Bytes old = a.save(saved);
  a.steps(saved, 3);
  const Bytes next = a.save(saved);
  for (int delay = 0; delay < 20; delay++) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (;;) (void)kvc_seq_save(a.cache, saved, &save, nullptr, nullptr);
    }
    usleep(static_cast<useconds_t>(delay * 300));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    std::ifstream file(path, std::ios::binary);
    const Bytes bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_TRUE(bytes == old || bytes == next) << bytes.size();
    Chat b;
    b.load(bytes);
  }
}

}  // namespace
}  // namespace kvt
