// The workloads that use no cache, and arrays in the GPU's own memory.
#include "policy_kernels.h"
#include "workloads/blocks.h"
#include "workloads/ctc.h"
#include "workloads/random_io.h"
#include "workloads/sources.h"

namespace flashmob::gpu::cuda {
namespace {

const Kernels plain = array_kernels<workloads::PlainRef>();
const Kernels others = {
    kernel<workloads::CtcSyncKernel>(), kernel<workloads::CtcAsyncKernel>(), kernel<workloads::RandomIoKernel>(),
    kernel<workloads::GatherBlocks>(),  kernel<workloads::ScatterBlocks>(),  kernel<workloads::DlrmActivate>(),
    kernel<workloads::DlrmInteract>(),  kernel<workloads::DlrmScore>(),      kernel<workloads::MatrixProductKernel>()};

}  // namespace
}  // namespace flashmob::gpu::cuda
