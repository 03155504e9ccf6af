// What a test tells the libnixl_capi.so of fake_nixl.cc.
#pragma once

#include <cstddef>
#include <string>

#define FAKE_API __attribute__((visibility("default")))

struct FakeNixl {
  bool broken = false;      // nothing can be sent
  bool reversed = false;    // a call gives the notifications last first
  bool wrong_name = false;  // metadata is that of another agent
  size_t filler_bytes = 0;  // of metadata
  std::string last;         // notification that was sent
};

extern "C" FakeNixl *fake_nixl();
extern "C" void fake_nixl_inject(const char *to, const char *from, const void *data, size_t bytes);
