// The cache with the policy ClockPolicy, and the workloads on it.
#include "flashmob/gpu/cache_policy/clock.h"
#include "policy_kernels.h"

namespace flashmob::gpu::cuda {
namespace {

const Kernels kernels = policy_kernels<ClockPolicy>();

}  // namespace
}  // namespace flashmob::gpu::cuda
