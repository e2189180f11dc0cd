// The cache with the policy S3Fifo, and the workloads on it.
#include "flashmob/gpu/cache_policy/s3_fifo.h"
#include "policy_kernels.h"

namespace flashmob::gpu::cuda {
namespace {

const Kernels kernels = policy_kernels<S3Fifo>();

}  // namespace
}  // namespace flashmob::gpu::cuda
