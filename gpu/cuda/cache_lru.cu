// The cache with the policy Lru, and the workloads on it.
#include "flashmob/gpu/cache_policy/lru.h"
#include "policy_kernels.h"

namespace flashmob::gpu::cuda {
namespace {

const Kernels kernels = policy_kernels<Lru>();

}  // namespace
}  // namespace flashmob::gpu::cuda
