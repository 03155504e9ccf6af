// The two functions that ONNX Runtime finds by their names, and the factory that they make and release.
#include <cstdlib>
#include <memory>

#include "provider.h"

namespace kvc_ort {

const OrtApi* ort = nullptr;
const OrtEpApi* ort_ep = nullptr;

namespace {

class Factory : public OrtEpFactory {
 public:
  Factory() : OrtEpFactory{} {
    ort_version_supported = ORT_API_VERSION;
    GetName = [](const OrtEpFactory*) noexcept -> const char* { return kProviderName; };
    GetVendor = [](const OrtEpFactory*) noexcept -> const char* { return "libkvcache"; };
    GetVendorId = [](const OrtEpFactory*) noexcept -> uint32_t { return 0; };
    GetVersion = [](const OrtEpFactory*) noexcept -> const char* { return kvc_version(); };
    GetSupportedDevices = on_devices;
    CreateEp = on_create;
    ReleaseEp = [](OrtEpFactory*, OrtEp* provider) noexcept { delete static_cast<Provider*>(provider); };
    CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** transfer) noexcept -> OrtStatus* {
      *transfer = nullptr;  // all tensors are in ordinary memory
      return nullptr;
    };
    CreateAllocator = [](OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                         OrtAllocator** allocator) noexcept -> OrtStatus* {
      *allocator = nullptr;  // ONNX Runtime's own
      return nullptr;
    };
    ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) noexcept {};
    IsStreamAware = [](const OrtEpFactory*) noexcept { return false; };
  }

 private:
  static OrtStatus* on_devices(OrtEpFactory* self, const OrtHardwareDevice* const* devices, size_t count,
                               OrtEpDevice** supported, size_t room, size_t* num_supported) noexcept;
  static OrtStatus* on_create(OrtEpFactory*, const OrtHardwareDevice* const*, const OrtKeyValuePairs* const*, size_t,
                              const OrtSessionOptions* options, const OrtLogger* logger, OrtEp** provider) noexcept;
};

// The first CPU. Machines with several sockets have one CPU device.
OrtStatus* Factory::on_devices(OrtEpFactory* self, const OrtHardwareDevice* const* devices, size_t count,
                               OrtEpDevice** supported, size_t room, size_t* num_supported) noexcept {
  return guarded([&] {
    *num_supported = 0;
    for (size_t i = 0; i < count && room > 0 && *num_supported == 0; i++) {
      if (ort->HardwareDevice_Type(devices[i]) != OrtHardwareDeviceType_CPU) continue;
      check(ort_ep->CreateEpDevice(self, devices[i], nullptr, nullptr, &supported[0]));
      *num_supported = 1;
    }
  });
}

// The option num_threads of the provider: the most threads that one attention call is cut for.
int32_t num_threads_of(const OrtSessionOptions* options) {
  const char* key = "ep.kvcacheexecutionprovider.num_threads";
  int has = 0;
  check(ort->HasSessionConfigEntry(options, key, &has));
  if (has == 0) return 0;
  char text[32] = {};
  size_t size = sizeof(text);
  check(ort->GetSessionConfigEntry(options, key, text, &size));
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 0 || value > 1024) {
    refuse(std::string("num_threads of ") + kProviderName + " is '" + text + "', but must be 0 to 1024");
  }
  return static_cast<int32_t>(value);
}

OrtStatus* Factory::on_create(OrtEpFactory*, const OrtHardwareDevice* const*, const OrtKeyValuePairs* const*, size_t,
                              const OrtSessionOptions* options, const OrtLogger* logger, OrtEp** provider) noexcept {
  return guarded([&] { *provider = new Provider(num_threads_of(options), logger); });
}

}  // namespace
}  // namespace kvc_ort

extern "C" {

__attribute__((visibility("default"))) OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base,
                                                                    const OrtLogger*, OrtEpFactory** factories,
                                                                    size_t room, size_t* num_factories) {
  using namespace kvc_ort;
  *num_factories = 0;
  ort = base->GetApi(ORT_API_VERSION);
  if (ort == nullptr) {  // an older ONNX Runtime; every version has the functions of the first
    const std::string text = std::string("kvcache needs ONNX Runtime 1.") + std::to_string(ORT_API_VERSION) +
                             " or later, but this is " + base->GetVersionString();
    return base->GetApi(1)->CreateStatus(ORT_FAIL, text.c_str());
  }
  ort_ep = ort->GetEpApi();
  return guarded([&] {
    if (room < 1) refuse("kvcache needs room for one factory");
    factories[0] = new Factory();
    *num_factories = 1;
  });
}

__attribute__((visibility("default"))) OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
  delete static_cast<kvc_ort::Factory*>(factory);
  return nullptr;
}

}  // extern "C"
