// The SSD's engine on the GPU.
#include "flashmob/gpu/engine/kernel.h"
#include "registry.h"

namespace flashmob::gpu::cuda {
namespace {

const Kernels kernels = {kernel<engine::EngineKernel>()};

}  // namespace
}  // namespace flashmob::gpu::cuda
