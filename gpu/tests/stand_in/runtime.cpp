// CUDA's runtime API over the emulated GPU. Each function keeps the rule that its comment names; what is not said is as
// one would expect.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "stand_in/gpu.h"

using flashmob::gpu::simt::Shape;
using flashmob::gpu::stand_in::Entry;
using flashmob::gpu::stand_in::Event;
using flashmob::gpu::stand_in::Gpu;
using flashmob::gpu::stand_in::Stream;

namespace {

constexpr std::size_t kPage = 4096;
constexpr int kRubbish = 0xA5;  // what memory holds that nobody has written

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

// `work` with the lock held, where the device has not failed.
template <class Work>
cudaError_t call(const Work& work) {
  Gpu& gpu = Gpu::get();
  Gpu::Lock lock(gpu);
  if (gpu.error() != cudaSuccess) return noted(gpu.error());
  return noted(work(gpu, lock));
}

Stream* or_legacy(Gpu& gpu, cudaStream_t stream) { return stream != nullptr ? stream : gpu.legacy(); }

std::uintptr_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

const Entry& entry_of(const void* entry) { return *static_cast<const Entry*>(entry); }

// Whole pages, which is what is registered.
struct Pages {
  std::uintptr_t first;
  std::size_t bytes;
  Pages(const void* data, std::size_t size)
      : first(address(data) / kPage * kPage), bytes((address(data) + size + kPage - 1) / kPage * kPage - first) {}
};

cudaError_t allocate(void** data, std::size_t bytes, std::map<std::uintptr_t, std::size_t>& where) {
  const std::size_t whole = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  // Small blocks are cut from a larger piece, at multiples of 256 bytes.
  const std::size_t in_piece =
      whole < flashmob::gpu::stand_in::kOwnPieceBytes ? flashmob::gpu::stand_in::kInPieceBytes : 0;
  auto* const piece = static_cast<std::byte*>(std::aligned_alloc(kPage, whole + (in_piece != 0 ? kPage : 0)));
  if (piece == nullptr) return cudaErrorMemoryAllocation;
  *data = piece + in_piece;
  std::memset(*data, kRubbish, whole);
  where[address(*data)] = whole;
  return cudaSuccess;
}

cudaError_t give_back(Gpu& gpu, Gpu::Lock& lock, void* data, std::map<std::uintptr_t, std::size_t>& where,
                      const char* name) {
  if (data == nullptr) return cudaSuccess;
  if (where.count(address(data)) == 0) {
    gpu.find(std::string(name) + " of what was not allocated");
    return cudaErrorInvalidValue;
  }
  const cudaError_t waited = gpu.wait_for_kernels(lock, name);
  if (waited != cudaSuccess) return waited;
  if (&where == &gpu.device) gpu.show_device(true);
  Gpu::free_block(address(data), where.at(address(data)));
  where.erase(address(data));
  return cudaSuccess;
}

}  // namespace

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorLaunchOutOfResources:
      return "too many resources requested for launch";
    case cudaErrorLaunchTimeout:
      return "the launch timed out and was terminated";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "part or all of the requested memory range is already mapped";
    case cudaErrorHostMemoryNotRegistered:
      return "pointer does not correspond to a registered memory region";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorNotSupported:
      return "operation not supported";
    default:
      return "no error";
  }
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int ordinal) {
  return call([&](Gpu&, Gpu::Lock&) { return ordinal == 0 ? cudaSuccess : cudaErrorInvalidDevice; });
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  return call([&](Gpu& gpu, Gpu::Lock&) {
    gpu.flags = flags;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetLimit(cudaLimit, std::size_t value) {
  return call([&](Gpu& gpu, Gpu::Lock&) {
    gpu.stack_bytes = value;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit) {
  return call([&](Gpu& gpu, Gpu::Lock&) {
    *value = gpu.stack_bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return call([&](Gpu& gpu, Gpu::Lock&) {
    *value = gpu.model().uses_host_pointers ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  return call([&](Gpu& gpu, Gpu::Lock&) {
    *properties = {};
    std::strcpy(properties->name, "stand-in for a GPU (kernels are fibres on the CPU; its times mean nothing)");
    properties->major = 9;
    properties->multiProcessorCount = static_cast<int>(gpu.model().multiprocessors);
    properties->sharedMemPerBlockOptin = gpu.model().shared_bytes_each - 1024;
    return cudaSuccess;
  });
}

// --- Memory ---

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return call([&](Gpu& gpu, Gpu::Lock&) {
    const cudaError_t result = allocate(data, bytes, gpu.device);
    if (result == cudaSuccess) gpu.show_block(address(*data), gpu.device.at(address(*data)));
    return result;
  });
}

// Waits for the device.
cudaError_t cudaFree(void* data) {
  return call([&](Gpu& gpu, Gpu::Lock& lock) { return give_back(gpu, lock, data, gpu.device, "cudaFree"); });
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return call([&](Gpu& gpu, Gpu::Lock&) { return allocate(data, bytes, gpu.pinned); });
}

// Likewise.
cudaError_t cudaFreeHost(void* data) {
  return call([&](Gpu& gpu, Gpu::Lock& lock) { return give_back(gpu, lock, data, gpu.pinned, "cudaFreeHost"); });
}

// A range that is registered already, in part or as a whole, is not registered again.
cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned) {
  return call([&](Gpu& gpu, Gpu::Lock&) {
    if (data == nullptr || bytes == 0) return cudaErrorInvalidValue;
    const Pages pages(data, bytes);
    const auto* const first = reinterpret_cast<const void*>(pages.first);
    if (Gpu::meets(gpu.device, first, pages.bytes)) return cudaErrorInvalidValue;
    if (Gpu::meets(gpu.registered, first, pages.bytes) || Gpu::meets(gpu.pinned, first, pages.bytes))
      return cudaErrorHostMemoryAlreadyRegistered;
    if (gpu.registered_bytes() + pages.bytes > gpu.model().most_registered_bytes) return cudaErrorMemoryAllocation;
    gpu.registered[pages.first] = pages.bytes;
    return cudaSuccess;
  });
}

// Waits for the device.
cudaError_t cudaHostUnregister(void* data) {
  return call([&](Gpu& gpu, Gpu::Lock& lock) {
    const auto held = gpu.registered.find(Pages(data, 1).first);
    if (held == gpu.registered.end()) {
      gpu.find("cudaHostUnregister of what is not registered");
      return cudaErrorHostMemoryNotRegistered;
    }
    const cudaError_t waited = gpu.wait_for_kernels(lock, "cudaHostUnregister");
    if (waited == cudaSuccess) gpu.registered.erase(held);
    return waited;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  return call([&](Gpu& gpu, Gpu::Lock&) {
    attributes->type = gpu.type_of(data);
    return cudaSuccess;
  });
}

// In the legacy default stream; the host does not wait for a GPU's own memory.
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  return call([&](Gpu& gpu, Gpu::Lock& lock) {
    gpu.enqueue(gpu.legacy(), [=] { std::memset(data, value, bytes); });
    const bool waits = gpu.type_of(data) != cudaMemoryTypeDevice;
    return waits ? gpu.wait_for(lock, gpu.legacy(), "cudaMemset") : cudaSuccess;
  });
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return call([&](Gpu& gpu, Gpu::Lock&) {
    gpu.enqueue(or_legacy(gpu, stream), [=] { std::memset(data, value, bytes); });
    return cudaSuccess;
  });
}

// From pageable memory to the GPU's: taken when the call returns, there some time later. Within the GPU's memory: not
// waited for. All other copies are finished.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  return call([&](Gpu& gpu, Gpu::Lock& lock) {
    if (bytes == 0) return cudaSuccess;
    const cudaError_t before = gpu.wait_for(lock, gpu.legacy(), "cudaMemcpy");
    if (before != cudaSuccess) return before;
    const bool to_device = gpu.type_of(to) == cudaMemoryTypeDevice;
    if (to_device && gpu.type_of(from) == cudaMemoryTypeUnregistered) {
      auto staged = std::make_shared<std::vector<char>>(bytes);
      std::memcpy(staged->data(), from, bytes);
      gpu.enqueue(gpu.legacy(), [=] { std::memcpy(to, staged->data(), bytes); });
      return cudaSuccess;
    }
    gpu.enqueue(gpu.legacy(), [=] { std::memcpy(to, from, bytes); });
    if (to_device && gpu.type_of(from) == cudaMemoryTypeDevice) return cudaSuccess;
    return gpu.wait_for(lock, gpu.legacy(), "cudaMemcpy");
  });
}

// Pageable memory is taken at once, and waited for where it is written to; pinned memory is read and written late.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return call([&](Gpu& gpu, Gpu::Lock& lock) {
    if (bytes == 0) return cudaSuccess;
    Stream* const on = or_legacy(gpu, stream);
    if (gpu.type_of(from) == cudaMemoryTypeUnregistered) {
      auto staged = std::make_shared<std::vector<char>>(bytes);
      std::memcpy(staged->data(), from, bytes);
      gpu.enqueue(on, [=] { std::memcpy(to, staged->data(), bytes); });
    } else {
      gpu.enqueue(on, [=] { std::memcpy(to, from, bytes); });
    }
    const bool waits = gpu.type_of(to) == cudaMemoryTypeUnregistered;
    return waits ? gpu.wait_for(lock, on, "cudaMemcpyAsync") : cudaSuccess;
  });
}

// --- Streams and events ---

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call([&](Gpu& gpu, Gpu::Lock&) {
    *stream = gpu.make_stream((flags & cudaStreamNonBlocking) == 0);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call([&](Gpu& gpu, Gpu::Lock&) {
    gpu.drop_stream(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call(
      [&](Gpu& gpu, Gpu::Lock&) { return gpu.is_idle(or_legacy(gpu, stream)) ? cudaSuccess : cudaErrorNotReady; });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call(
      [&](Gpu& gpu, Gpu::Lock& lock) { return gpu.wait_for(lock, or_legacy(gpu, stream), "cudaStreamSynchronize"); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new Event;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

// Stands in the hardware's queue until all work before it in its stream has ended, a kernel above all, and whoever
// shares the queue stands behind it.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&](Gpu& gpu, Gpu::Lock&) {
    gpu.record(or_legacy(gpu, stream), event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&](Gpu&, Gpu::Lock&) { return event->reached >= event->recorded ? cudaSuccess : cudaErrorNotReady; });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&](Gpu& gpu, Gpu::Lock& lock) { return gpu.wait_for(lock, event, "cudaEventSynchronize"); });
}

// --- Kernels ---

// Loads the kernel.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* entry) {
  return call([&](Gpu& gpu, Gpu::Lock& lock) {
    attributes->localSizeBytes = entry_of(entry).local_bytes;
    return gpu.load(lock, entry_of(entry));
  });
}

cudaError_t cudaFuncSetAttribute(const void* entry, cudaFuncAttribute, int value) {
  return call([&](Gpu& gpu, Gpu::Lock& lock) {
    if (static_cast<std::uint32_t>(value) > gpu.model().shared_bytes_each - 1024) return cudaErrorInvalidValue;
    return gpu.load(lock, entry_of(entry));
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* entry, int threads,
                                                          std::size_t shared_bytes) {
  return call([&](Gpu& gpu, Gpu::Lock& lock) {
    const Shape shape{1, static_cast<std::uint32_t>(threads), static_cast<std::uint32_t>(shared_bytes)};
    *blocks = static_cast<int>(gpu.blocks_each(entry_of(entry), shape));
    return gpu.load(lock, entry_of(entry));
  });
}

// Loads the kernel if need be, and waits for kernels that run if it needs more local memory than any before it.
cudaError_t cudaLaunchKernel(const void* entry, dim3 blocks, dim3 threads, void** arguments, std::size_t shared_bytes,
                             cudaStream_t stream) {
  return call([&](Gpu& gpu, Gpu::Lock& lock) {
    const Shape shape{blocks.x, threads.x, static_cast<std::uint32_t>(shared_bytes)};
    cudaError_t result = gpu.load(lock, entry_of(entry));
    if (result == cudaSuccess) result = gpu.fit_local_memory(lock, entry_of(entry));
    if (result == cudaSuccess) result = gpu.launch(or_legacy(gpu, stream), entry_of(entry), shape, arguments);
    return result;
  });
}

// --- Memory of other processes: there is none that would have a GPU's ---

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return noted(cudaErrorNotSupported); }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) { return noted(cudaErrorNotSupported); }
cudaError_t cudaIpcCloseMemHandle(void*) { return noted(cudaErrorNotSupported); }
