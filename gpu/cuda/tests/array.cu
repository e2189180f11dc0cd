// The kernels of gpu/tests/array.
#include "array/kernels.h"
#include "registry.h"

namespace flashmob::gpu::cuda {
namespace {

using namespace suite;

const Kernels kernels = {kernel<ReadAtRandom>(),
                         kernel<WriteNeighbours>(),
                         kernel<CountUp>(),
                         kernel<CompareAndSwap>(),
                         kernel<ReadOneFar>(),
                         kernel<ReadWarpWide>(),
                         kernel<CompareFlat<Striped>>(),
                         kernel<CompareFlat<Replicated>>(),
                         kernel<WriteFlat<Striped>>(),
                         kernel<WriteFlat<Replicated>>(),
                         kernel<GroupUp>(),
                         kernel<CopyRange>(),
                         kernel<CopyRangeByBlock>(),
                         kernel<GatherScatter>(),
                         kernel<AskAhead>()};

}  // namespace
}  // namespace flashmob::gpu::cuda
