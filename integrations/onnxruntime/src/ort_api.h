// The tables of functions of ONNX Runtime. Within the plug-in a failure is an exception. No exception leaves it: every
// function that ONNX Runtime calls has its body within `guarded`.
#pragma once

#include <exception>
#include <string>

#include "ort_abi.h"

namespace kvc_ort {

extern const OrtApi* ort;       // set once, by CreateEpFactories
extern const OrtEpApi* ort_ep;  // the part for execution providers

struct Failure {
  OrtErrorCode code;
  std::string message;
};

[[noreturn]] inline void refuse(std::string message) { throw Failure{ORT_INVALID_ARGUMENT, std::move(message)}; }

// Throws what `status` says, and releases it.
inline void check(OrtStatus* status) {
  if (status == nullptr) return;
  Failure failure{ort->GetErrorCode(status), ort->GetErrorMessage(status)};
  ort->ReleaseStatus(status);
  throw failure;
}

template <class Body>
OrtStatus* guarded(Body body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const Failure& failure) {
    return ort->CreateStatus(failure.code, failure.message.c_str());
  } catch (const std::exception& error) {
    return ort->CreateStatus(ORT_FAIL, error.what());
  }
}

}  // namespace kvc_ort
