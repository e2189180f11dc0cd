// The kernels of gpu/tests/rules.
#include "registry.h"
#include "rules/kernels.h"

namespace flashmob::gpu::cuda {
namespace {

using namespace rules;

const Kernels kernels = {kernel<Linger>(), kernel<Fill>(), kernel<CountOthers>(), kernel<Deep>(), kernel<ReadBlocks>()};

}  // namespace
}  // namespace flashmob::gpu::cuda
