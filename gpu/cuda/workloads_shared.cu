// The workloads on arrays whose lines threads share through the table of buffers.
#include "policy_kernels.h"
#include "workloads/sources.h"

namespace flashmob::gpu::cuda {
namespace {

const Kernels kernels = array_kernels<workloads::SharedRef>();

}  // namespace
}  // namespace flashmob::gpu::cuda
