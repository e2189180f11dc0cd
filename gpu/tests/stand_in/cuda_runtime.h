// Stands in for CUDA's header of this name: as much of the runtime API as flashmob calls, over the emulated GPU of
// gpu.h, which keeps CUDA's rules where they hurt. Names are CUDA's (CUDA Runtime API, "API synchronization behavior",
// and the CUDA C++ Programming Guide on streams); what a call does here is said in runtime.cpp.
//
// Thread rule: any thread, as CUDA's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flashmob::gpu::stand_in {
class Stream;
class Event;
}  // namespace flashmob::gpu::stand_in

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorLaunchTimeout = 702,
  cudaErrorHostMemoryAlreadyRegistered = 712,
  cudaErrorHostMemoryNotRegistered = 713,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
};

using cudaStream_t = flashmob::gpu::stand_in::Stream*;
using cudaEvent_t = flashmob::gpu::stand_in::Event*;

struct cudaDeviceProp {
  char name[256];
  int major, minor;
  int multiProcessorCount;
  std::size_t sharedMemPerBlockOptin;
};
struct cudaFuncAttributes {
  std::size_t localSizeBytes;
};
struct cudaIpcMemHandle_t {
  char reserved[64];
};
struct dim3 {
  explicit dim3(unsigned all) : x(all) {}
  unsigned x;
};

enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr { cudaDevAttrCanUseHostPointerForRegisteredMem = 91 };
enum cudaLimit { cudaLimitStackSize = 0 };
enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
};
struct cudaPointerAttributes {
  cudaMemoryType type;
};
inline constexpr unsigned cudaHostAllocPortable = 1, cudaHostAllocMapped = 2;
inline constexpr unsigned cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2;
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaDeviceLmemResizeToMax = 16;
inline constexpr unsigned cudaIpcMemLazyEnablePeerAccess = 1;

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int ordinal);
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value);
cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int ordinal);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal);

cudaError_t cudaMalloc(void** data, std::size_t bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* data);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data);
cudaError_t cudaMemset(void* data, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* entry);
cudaError_t cudaFuncSetAttribute(const void* entry, cudaFuncAttribute attribute, int value);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* entry, int threads,
                                                          std::size_t shared_bytes);
cudaError_t cudaLaunchKernel(const void* entry, dim3 blocks, dim3 threads, void** arguments, std::size_t shared_bytes,
                             cudaStream_t stream);

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* data);
cudaError_t cudaIpcOpenMemHandle(void** data, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void* data);
