// libflashmob_cuda.so's one exported function: the table of cuda_abi.h over CudaDevice.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "registry.h"

namespace flashmob::gpu::cuda {

std::map<std::string, Kernel>& all_kernels() {
  static std::map<std::string, Kernel> kernels;
  return kernels;
}

namespace {

using simt::CudaDevice;
using simt::CudaError;
using simt::CudaPlace;
using simt::CudaText;

CudaDevice& device_of(void* device) { return *static_cast<CudaDevice*>(device); }

void say(CudaText to, const std::string& text) { std::snprintf(to.data, to.bytes, "%s", text.c_str()); }

// What `work` returns; `failed` with the reason in `error` if it throws, for nothing may throw across the boundary.
template <class Result, class Work>
Result guarded(CudaText error, Result failed, const Work& work) {
  try {
    return work();
  } catch (const std::exception& thrown) {
    say(error, thrown.what());
    return failed;
  }
}

const Kernel& find_kernel(const char* name) {
  const auto found = all_kernels().find(name);
  if (found == all_kernels().end())
    throw CudaError(std::string("libflashmob_cuda.so has no kernel ") + name + "; gpu/cuda lists those that it has");
  return found->second;
}

std::int32_t devices(CudaText error) {
  std::string reason;
  const int count = simt::cuda_devices(reason);
  say(error, reason);
  return count;
}

void* open_device(std::int32_t ordinal, CudaText error) {
  return guarded<void*>(error, nullptr, [&] {
    std::vector<const void*> entries;
    for (const auto& [name, kernel] : all_kernels()) entries.push_back(kernel.entry);
    return new CudaDevice(ordinal, entries);
  });
}

void close_device(void* device) { delete static_cast<CudaDevice*>(device); }

void describe(void* device, CudaText text) { say(text, device_of(device).describe()); }

std::uint32_t multiprocessors(void* device) { return device_of(device).multiprocessors(); }

void* allocate(void* device, CudaPlace place, std::size_t bytes, CudaText error) {
  return guarded<void*>(error, nullptr, [&] { return device_of(device).allocate(place, bytes); });
}

void release(void* device, void* data) { device_of(device).release(data); }

bool copy(void* device, void* to, const void* from, std::size_t bytes, CudaText error) {
  return guarded(error, false, [&] {
    device_of(device).copy(to, from, bytes);
    return true;
  });
}

bool share(void* device, void* data, std::size_t bytes, CudaText error) {
  return guarded(error, false, [&] {
    device_of(device).share_host_memory(data, bytes);
    return true;
  });
}

void unshare(void* device, void* data, std::size_t bytes) { device_of(device).unshare_host_memory(data, bytes); }

std::uint64_t launch(void* device, const char* name, const simt::Shape* shape, void** arguments,
                     const simt::CudaStream* stream, CudaText error) {
  return guarded<std::uint64_t>(error, 0, [&] {
    const Kernel& kernel = find_kernel(name);
    return device_of(device).launch_entry(kernel.entry, *shape, arguments, kernel.stays, stream);
  });
}

std::uint32_t resident_blocks(void* device, const char* name, const simt::Shape* shape, CudaText error) {
  return guarded<std::uint32_t>(error, 0, [&] {
    const std::uint32_t blocks = device_of(device).resident_blocks_of(find_kernel(name).entry, *shape);
    if (blocks == 0) throw CudaError(std::string("no block of this shape fits on the GPU: ") + name);
    return blocks;
  });
}

bool wait(void* device, std::uint64_t launched, CudaText error) {
  return guarded(error, false, [&] {
    device_of(device).wait(launched);
    return true;
  });
}

bool finished(void* device, std::uint64_t launched) { return device_of(device).finished(launched); }

std::uint64_t now_ns(void* device) { return device_of(device).now_ns(); }

bool check_clock(void* device, simt::ClockReport* report, CudaText error) {
  return guarded(error, false, [&] {
    *report = device_of(device).check_clock();
    return true;
  });
}

std::uint32_t most_shared_bytes(void* device) { return device_of(device).most_shared_bytes(); }

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(simt::CudaMemoryHandle));

bool export_memory(void*, void* data, simt::CudaMemoryHandle* handle, CudaText error) {
  return guarded(error, false, [&] {
    simt::detail::check_cuda(cudaIpcGetMemHandle(reinterpret_cast<cudaIpcMemHandle_t*>(handle), data),
                             "cudaIpcGetMemHandle");
    return true;
  });
}

void* import_memory(void*, const simt::CudaMemoryHandle* handle, CudaText error) {
  return guarded<void*>(error, nullptr, [&] {
    cudaIpcMemHandle_t name;
    std::memcpy(&name, handle, sizeof(name));
    void* data = nullptr;
    simt::detail::check_cuda(cudaIpcOpenMemHandle(&data, name, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
    return data;
  });
}

void close_import(void*, void* data) { cudaIpcCloseMemHandle(data); }

constexpr simt::CudaAbi kAbi = {
    .version = simt::kCudaAbiVersion,
    .devices = devices,
    .open = open_device,
    .close = close_device,
    .describe = describe,
    .multiprocessors = multiprocessors,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .share = share,
    .unshare = unshare,
    .launch = launch,
    .resident_blocks = resident_blocks,
    .wait = wait,
    .finished = finished,
    .now_ns = now_ns,
    .check_clock = check_clock,
    .most_shared_bytes = most_shared_bytes,
    .export_memory = export_memory,
    .import_memory = import_memory,
    .close_import = close_import,
};

}  // namespace
}  // namespace flashmob::gpu::cuda

extern "C" __attribute__((visibility("default"))) const flashmob::gpu::simt::CudaAbi* flashmob_cuda_abi() {
  return &flashmob::gpu::cuda::kAbi;
}
