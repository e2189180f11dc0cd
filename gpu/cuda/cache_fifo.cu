// The cache with the policy Fifo, and the workloads on it.
#include "flashmob/gpu/cache_policy/fifo.h"
#include "policy_kernels.h"

namespace flashmob::gpu::cuda {
namespace {

const Kernels kernels = policy_kernels<Fifo>();

}  // namespace
}  // namespace flashmob::gpu::cuda
