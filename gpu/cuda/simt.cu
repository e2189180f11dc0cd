// Kernels of the SIMT layer itself: what its own test launches to see whether the vocabulary means on a GPU what it
// means on a CPU.
#include "litmus_kernels.h"
#include "registry.h"
#include "simt_kernels.h"

namespace flashmob::gpu::cuda {
namespace {

const Kernels kernels = {kernel<CheckCollectives>(), kernel<CheckAtomics>(), kernel<CheckBlock>(),
                         kernel<PassMessages>(),     kernel<GiveBack>(),     kernel<Correspond>()};

}  // namespace
}  // namespace flashmob::gpu::cuda
