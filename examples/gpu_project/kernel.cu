// A CUDA kernel of this project's own around the device code. Compiled by nvcc.
#include "flashmob/gpu/simt/cuda.h"
#include "sum_blocks.h"

namespace {

__global__ void sum_blocks(flashmob::gpu::SsdRef ssd, std::uint64_t blocks, std::byte* buffers,
                           flashmob::gpu::simt::Word<std::uint64_t>* sum,
                           flashmob::gpu::simt::Word<std::uint64_t>* failed) {
  flashmob::gpu::simt::CudaLane lane;
  SumBlocks{}(lane, ssd, blocks, buffers, sum, failed);
}

}  // namespace

// What is loaded beside a kernel that stays waits for it: load first, then start the service.
const char* load_sum_blocks() {
  cudaFuncAttributes attributes{};
  const cudaError_t result = cudaFuncGetAttributes(&attributes, sum_blocks);
  return result == cudaSuccess ? nullptr : cudaGetErrorString(result);
}

// In a stream of its own: the default one waits for the service kernel, which stays.
const char* launch_sum_blocks(unsigned threads, flashmob::gpu::SsdRef ssd, std::uint64_t blocks, std::byte* buffers,
                              flashmob::gpu::simt::Word<std::uint64_t>* sum,
                              flashmob::gpu::simt::Word<std::uint64_t>* failed) {
  cudaStream_t stream = nullptr;
  cudaError_t result = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (result == cudaSuccess) {
    sum_blocks<<<threads / 32, 32, 0, stream>>>(ssd, blocks, buffers, sum, failed);
    result = cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
  return result == cudaSuccess ? nullptr : cudaGetErrorString(result);
}
