// A libnixl_capi.so for tests: agents of this process, whose notifications a test can reverse, refuse or make up.
#include "fake_nixl.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using Notes = std::map<std::string, std::vector<std::string>>;

struct Agent {
  std::string name;
  std::set<std::string> known;  // whose metadata it has
  std::deque<std::pair<std::string, std::string>> queue;
};

std::map<std::string, Agent *> agents;
FakeNixl fake;

Agent &of(void *agent) { return *static_cast<Agent *>(agent); }
const Notes &notes_of(void *notes) { return *static_cast<Notes *>(notes); }

}  // namespace

extern "C" {

FAKE_API FakeNixl *fake_nixl() { return &fake; }
FAKE_API void fake_nixl_inject(const char *to, const char *from, const void *data, size_t bytes) {
  agents.at(to)->queue.emplace_back(from, std::string(static_cast<const char *>(data), bytes));
}

FAKE_API int nixl_capi_create_configured_agent(const char *name, const void *, void **agent) {
  if (agents.count(name) != 0) return -1;
  *agent = agents[name] = new Agent{name, {}, {}};
  return 0;
}
FAKE_API int nixl_capi_destroy_agent(void *agent) {
  agents.erase(of(agent).name);
  delete static_cast<Agent *>(agent);
  return 0;
}
FAKE_API int nixl_capi_create_params(void **params) {
  *params = new std::map<std::string, std::string>();
  return 0;
}
FAKE_API int nixl_capi_params_add(void *params, const char *name, const char *value) {
  (*static_cast<std::map<std::string, std::string> *>(params))[name] = value;
  return 0;
}
FAKE_API int nixl_capi_destroy_params(void *params) {
  delete static_cast<std::map<std::string, std::string> *>(params);
  return 0;
}
FAKE_API int nixl_capi_create_backend(void *, const char *, void *, void **backend) {
  *backend = new int(0);
  return 0;
}
FAKE_API int nixl_capi_destroy_backend(void *backend) {
  delete static_cast<int *>(backend);
  return 0;
}
// Metadata is the name, and filler.
FAKE_API int nixl_capi_get_local_md(void *agent, void **data, size_t *bytes) {
  const std::string &name = of(agent).name;
  *bytes = name.size() + fake.filler_bytes;
  *data = std::calloc(1, *bytes);
  std::memcpy(*data, name.data(), name.size());
  return 0;
}
FAKE_API int nixl_capi_load_remote_md(void *agent, const void *data, size_t bytes, char **name) {
  const std::string loaded(static_cast<const char *>(data), bytes);
  if (agents.count(loaded) == 0) return -2;
  of(agent).known.insert(loaded);
  *name = strdup(fake.wrong_name ? "another" : loaded.c_str());
  return 0;
}
FAKE_API int nixl_capi_invalidate_remote_md(void *agent, const char *name) {
  return of(agent).known.erase(name) == 1 ? 0 : -6;
}
FAKE_API int nixl_capi_gen_notif(void *agent, const char *to, const void *data, size_t bytes, void *) {
  const bool itself = of(agent).name == to;
  if (fake.broken || agents.count(to) == 0) return -2;
  if (!itself && of(agent).known.count(to) == 0) return -6;
  fake.last.assign(static_cast<const char *>(data), bytes);
  fake_nixl_inject(to, of(agent).name.c_str(), data, bytes);
  return 0;
}
FAKE_API int nixl_capi_create_notif_map(void **notes) {
  *notes = new Notes();
  return 0;
}
FAKE_API int nixl_capi_destroy_notif_map(void *notes) {
  delete static_cast<Notes *>(notes);
  return 0;
}
FAKE_API int nixl_capi_get_notifs(void *agent, void *notes, void *) {
  auto &queue = of(agent).queue;
  for (; !queue.empty(); fake.reversed ? queue.pop_back() : queue.pop_front()) {
    auto &[from, bytes] = fake.reversed ? queue.back() : queue.front();
    (*static_cast<Notes *>(notes))[from].push_back(bytes);
  }
  return 0;
}
FAKE_API int nixl_capi_notif_map_size(void *notes, size_t *count) {
  *count = notes_of(notes).size();
  return 0;
}
FAKE_API int nixl_capi_notif_map_get_agent_at(void *notes, size_t index, const char **name) {
  *name = std::next(notes_of(notes).begin(), static_cast<ptrdiff_t>(index))->first.c_str();
  return 0;
}
FAKE_API int nixl_capi_notif_map_get_notifs_size(void *notes, const char *agent, size_t *count) {
  *count = notes_of(notes).at(agent).size();
  return 0;
}
FAKE_API int nixl_capi_notif_map_get_notif(void *notes, const char *agent, size_t index, const void **data,
                                           size_t *bytes) {
  const std::string &note = notes_of(notes).at(agent).at(index);
  *data = note.data();
  *bytes = note.size();
  return 0;
}

}  // extern "C"
