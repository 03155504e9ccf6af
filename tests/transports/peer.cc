// The other process of a transfer.
//
//   peer prefill WAY TOKENS   reads a description from stdin, computes TOKENS tokens, and sends them
//   peer decode WAY TOKENS    writes a description to stdout, receives TOKENS tokens, and writes what 6
//   steps compute
//   peer flood WAY BYTES      reads the address of an endpoint from stdin, and sends messages of BYTES bytes to it
//   until it is killed peer reconnect WAY BYTES  likewise, and connects for each message anew
//
// It writes one byte to stderr each time when something has moved, polls until the transfer ends, and exits with 1 if
// it failed.
#include <climits>
#include <cstdlib>

#include "two_processes.h"

namespace kvt {
namespace {

int prefill(Engine &engine, int tokens) {
  const Bytes description = read_bytes(STDIN_FILENO);
  const kvc_seq seq = engine.add();
  kvc_transfer out = 0;
  if (engine.send(seq, description, &out) != KVC_OK) return 2;
  kvc_transfer_info info;
  int64_t moved = 0;
  const auto poll = [&] {
    if (engine.poll(out, &info) != KVC_OK) {
      (void)write_all(STDOUT_FILENO, engine.error.message, std::strlen(engine.error.message));
      std::exit(1);
    }
    if (info.bytes > moved) (void)write_all(STDERR_FILENO, "m", 1);
    moved = info.bytes;
  };
  for (int done = 0; done < tokens; done += 7) {
    engine.step(seq, std::min(7, tokens - done), [&](size_t) { poll(); });
  }
  for (info.done = 0; info.done == 0;) poll();
  return engine.length(seq) == tokens ? 0 : 3;
}

int decode(Engine &engine, int tokens) {
  kvc_transfer in = 0;
  if (engine.receive(tokens, &in, 5000) != KVC_OK || !write_bytes(STDOUT_FILENO, engine.describe(in))) return 2;
  kvc_transfer_info info;
  int64_t moved = 0;
  for (info.done = 0; info.done == 0;) {
    if (engine.poll(in, &info) != KVC_OK) return 1;
    if (info.bytes > moved) (void)write_all(STDERR_FILENO, "m", 1);
    moved = info.bytes;
  }
  return write_bytes(STDOUT_FILENO, engine.steps(info.sequence, 6)) ? 0 : 3;
}

// messages: how many a connection is used for.
int flood(const char *way, size_t bytes, int messages) {
  kvc_transport t;
  kvc_error error = KVC_ERROR_INIT;
  const Bytes address = read_bytes(STDIN_FILENO);
  if (open_transport(way, &t, &error) != KVC_OK) return 2;
  const std::vector<char> data(bytes);
  for (uint64_t operation = 1;;) {
    uint64_t peer = 0;
    if (t.connect(t.self, address.data(), static_cast<int64_t>(address.size()), &peer, &error) != 0) return 3;
    for (int i = 0; i < messages; i++) {
      t.send(t.self, peer, "message", 7, data.data(), static_cast<int64_t>(bytes), operation++, &error);
      kvc_transport_event events[16];
      (void)t.poll(t.self, events, 16);
    }
    t.flush(t.self, peer, 1000);
    t.disconnect(t.self, peer);
  }
}

}  // namespace
}  // namespace kvt

int main(int argc, char **argv) {
  if (argc != 4) return 4;
  const std::string mode = argv[1];
  if (mode == "flood") return kvt::flood(argv[2], std::stoul(argv[3]), INT_MAX);
  if (mode == "reconnect") return kvt::flood(argv[2], std::stoul(argv[3]), 1);
  kvt::Engine engine;
  kvt::use_transport(&engine, argv[2]);
  const int tokens = std::atoi(argv[3]);
  return mode == "prefill" ? kvt::prefill(engine, tokens) : kvt::decode(engine, tokens);
}
