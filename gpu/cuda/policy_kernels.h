// The kernels that exist once for each cache policy: cache_<policy>.cu compiles them for its own.
#pragma once

#include "flashmob/gpu/cache_owner.h"
#include "flashmob/gpu/striped.h"
#include "registry.h"
#include "workloads/bfs.h"
#include "workloads/dlrm.h"
#include "workloads/elements.h"
#include "workloads/mean.h"
#include "workloads/pagerank.h"
#include "workloads/spmv.h"
#include "workloads/workbench.h"

namespace flashmob::gpu::cuda {

// What reads arrays of indices and of floats, in whatever way `Ref` reaches them.
template <template <class> class Ref>
Kernels array_kernels() {
  using Index = Ref<std::uint64_t>;
  using Values = Ref<float>;
  return {kernel<workloads::SumKernel<Values>>(),         kernel<workloads::BfsKernel<Index>>(),
          kernel<workloads::SpmvKernel<Index, Values>>(), kernel<workloads::PagerankShares<Index>>(),
          kernel<workloads::PagerankPull<Index>>(),       kernel<workloads::DlrmGather<Values>>(),
          kernel<workloads::DlrmPrefetch<Values>>()};
}

template <class Cache>
struct Striped {
  template <class T>
  using Ref = StripedRef<T, Cache>;
};

template <class Policy>
Kernels policy_kernels() {
  using Cache = CacheRef<Policy>;
#if !defined(FLASHMOB_POLICY_WITHOUT_WORKLOADS)
  static_cast<void>(array_kernels<Striped<Cache>::template Ref>());
#endif
  return {kernel<FlushCacheKernel<Cache>>(), kernel<DrainCacheKernel<Cache>>(), kernel<workloads::TouchLines<Cache>>(),
          kernel<workloads::GatherElements<Cache>>(), kernel<workloads::ScatterElements<Cache>>()};
}

}  // namespace flashmob::gpu::cuda
