// The cache with the policy DirectMapped, and the workloads on it.
#include "flashmob/gpu/cache_policy/direct_mapped.h"
#include "policy_kernels.h"

namespace flashmob::gpu::cuda {
namespace {

const Kernels kernels = policy_kernels<DirectMapped>();

}  // namespace
}  // namespace flashmob::gpu::cuda
