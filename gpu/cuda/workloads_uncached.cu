// The workloads on arrays read from the SSDs each time.
#include "policy_kernels.h"
#include "workloads/sources.h"

namespace flashmob::gpu::cuda {
namespace {

const Kernels kernels = array_kernels<workloads::UncachedRef>();

}  // namespace
}  // namespace flashmob::gpu::cuda
