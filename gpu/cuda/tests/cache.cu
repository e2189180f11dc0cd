// The kernels of gpu/tests/cache.
#include "cache/kernels.h"
#include "registry.h"

namespace flashmob::gpu::cuda {
namespace {

using TwoTiers = test::TightTwoTierCache::Ref;

const Kernels kernels = {kernel<test::CountInLines<test::TightCache::Ref>>(), kernel<test::CountInLines<TwoTiers>>(),
                         kernel<FlushCacheKernel<TwoTiers>>(), kernel<DrainCacheKernel<TwoTiers>>(),
                         kernel<test::CountInBuffers<test::SsdTable>>()};

}  // namespace
}  // namespace flashmob::gpu::cuda
