// Queues: the service kernel.
#include "flashmob/gpu/service.h"
#include "registry.h"

namespace flashmob::gpu::cuda {
namespace {

const Kernels kernels = {kernel<ServiceKernel>()};

}  // namespace
}  // namespace flashmob::gpu::cuda
