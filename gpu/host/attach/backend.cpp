// Which backend runs kernels, and the sentence that says why.
#include <dlfcn.h>

#include "flashmob/error.h"
#include "flashmob/gpu.h"
#include "load/result.h"

namespace flashmob::gpu {
namespace {

BackendInfo cpu(Backend backend, std::string reason) {
  BackendInfo info;
  info.backend = backend;
  info.name = backend == Backend::fibres ? "fibres" : "threads";
  info.device = load::cpu_model();
  info.clock = backend == Backend::fibres ? "virtual" : "real";
  info.reason = std::move(reason);
  return info;
}

BackendInfo cuda(std::string reason) {
  BackendInfo info;
  info.backend = Backend::cuda;
  info.name = "cuda";
  info.device = simt::CudaBackend().describe();
  info.clock = "real";
  info.reason = std::move(reason);
  return info;
}

// Empty if there is a GPU. Told in the order in which one would mend it: driver, library, device.
std::string why_no_gpu() {
  std::string why = simt::why_no_cuda();
  if (why.empty()) return why;
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return std::string("no CUDA driver found: ") + dlerror();
  dlclose(driver);
  return why;
}

}  // namespace

BackendInfo choose_backend(const std::string& backend, const std::string& clock) {
  GpuOptions options;
  options.backend = backend;
  options.clock = clock;
  options.validate();
  if (backend == "fibres") return cpu(Backend::fibres, "asked for: kernels run as fibres on the CPU, in virtual time");
  if (backend == "threads") return cpu(Backend::threads, "asked for: kernels run as threads on the CPU, in real time");
  const std::string why_not = why_no_gpu();
  if (backend == "cuda") {
    if (why_not.empty()) return cuda("asked for: kernels are launched through CUDA");
    throw ConfigError("gpu.backend = \"cuda\" is not possible: " + why_not +
                      "; use \"auto\" to run kernels on the CPU where there is no GPU");
  }
  if (clock == "virtual")
    return cpu(Backend::fibres, "the virtual clock was asked for: kernels run as fibres on the CPU");
  if (why_not.empty()) return cuda("there is a GPU: kernels run on it");
  if (clock == "real") return cpu(Backend::threads, why_not + "; kernels run as threads on the CPU, in real time");
  return cpu(Backend::fibres, why_not + "; kernels run as fibres on the CPU, in virtual time");
}

}  // namespace flashmob::gpu
