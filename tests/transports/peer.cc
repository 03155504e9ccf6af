// The other process of a transfer.
//
//   peer prefill WAY TOKENS   reads a description from stdin, computes TOKENS tokens, and sends them
//   peer decode WAY TOKENS    writes a description to stdout, receives TOKENS tokens, and writes what 6
//   steps compute
//
// It writes one byte to stderr each time when something has moved, polls until the transfer ends, and exits with 1 if
// it failed.
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

}  // namespace
}  // namespace kvt

int main(int argc, char **argv) {
  if (argc != 4) return 4;
  kvt::Engine engine;
  kvt::use_transport(&engine, argv[2]);
  const int tokens = std::atoi(argv[3]);
  return std::string(argv[1]) == "prefill" ? kvt::prefill(engine, tokens) : kvt::decode(engine, tokens);
}
