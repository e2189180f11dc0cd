// libflashmob_cuda.so's one exported function: the table of cuda_abi.h over CudaDevice.
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>

#include "registry.h"

namespace flashmob::gpu::cuda {

std::map<std::string, const void*>& all_kernels() {
  static std::map<std::string, const void*> kernels;
  return kernels;
}

namespace {

using simt::CudaError;
using simt::CudaPlace;
using simt::CudaText;

struct Device {
  explicit Device(int ordinal) : cuda(ordinal) {}
  std::map<void*, std::unique_ptr<simt::CudaMemory>> memory;
  simt::CudaDevice cuda;  // gone first: it waits for the kernels that use the memory
};

Device& device_of(void* device) { return *static_cast<Device*>(device); }

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

const void* find_kernel(const char* name) {
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
  return guarded<void*>(error, nullptr, [&] { return new Device(ordinal); });
}

void close_device(void* device) { delete static_cast<Device*>(device); }

void describe(void* device, CudaText text) { say(text, device_of(device).cuda.describe()); }

std::uint32_t multiprocessors(void* device) { return device_of(device).cuda.multiprocessors(); }

void* allocate(void* device, CudaPlace place, std::size_t bytes, CudaText error) {
  return guarded<void*>(error, nullptr, [&] {
    auto memory = std::make_unique<simt::CudaMemory>(place, bytes);
    void* const data = memory->data();
    device_of(device).memory[data] = std::move(memory);
    return data;
  });
}

void release(void* device, void* data) { device_of(device).memory.erase(data); }

bool copy(void*, void* to, const void* from, std::size_t bytes, CudaText error) {
  return guarded(error, false, [&] {
    simt::detail::check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
    return true;
  });
}

bool share(void* device, void* data, std::size_t bytes, CudaText error) {
  return guarded(error, false, [&] {
    device_of(device).cuda.share_host_memory(data, bytes);
    return true;
  });
}

void unshare(void*, void* data) { cudaHostUnregister(data); }

std::uint64_t launch(void* device, const char* name, const simt::Shape* shape, void** arguments, CudaText error) {
  return guarded<std::uint64_t>(
      error, 0, [&] { return device_of(device).cuda.launch_entry(find_kernel(name), *shape, arguments); });
}

std::uint32_t resident_blocks(void* device, const char* name, const simt::Shape* shape, CudaText error) {
  return guarded<std::uint32_t>(error, 0, [&] {
    const std::uint32_t blocks = device_of(device).cuda.resident_blocks_of(find_kernel(name), *shape);
    if (blocks == 0) throw CudaError(std::string("no block of this shape fits on the GPU: ") + name);
    return blocks;
  });
}

bool wait(void* device, std::uint64_t launched, CudaText error) {
  return guarded(error, false, [&] {
    device_of(device).cuda.wait(launched);
    return true;
  });
}

bool finished(void* device, std::uint64_t launched) { return device_of(device).cuda.finished(launched); }

std::uint64_t now_ns(void* device) { return device_of(device).cuda.now_ns(); }

bool check_clock(void* device, simt::ClockReport* report, CudaText error) {
  return guarded(error, false, [&] {
    *report = device_of(device).cuda.check_clock();
    return true;
  });
}

std::uint32_t most_shared_bytes(void* device) { return device_of(device).cuda.most_shared_bytes(); }

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
