// The kernels of the CUDA library, by the name of their functor's type. One .cu for each area says which it has:
//
//   const Kernels kernels = {kernel<Scale>(), kernel<Sum<float>>()};
//
// Filled while the library is loaded, read by any thread afterwards.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <typeinfo>
#include <utility>

#include "flashmob/gpu/simt/cuda.h"

namespace flashmob::gpu::cuda {

struct Kernel {
  const void* entry = nullptr;
  bool stays = false;  // simt::kStaysResident
};
using NamedKernel = std::pair<const char*, Kernel>;

template <class Functor>
NamedKernel kernel() {
  return {typeid(Functor).name(), {simt::detail::cuda_entry<Functor>(), simt::kStaysResident<Functor>}};
}

std::map<std::string, Kernel>& all_kernels();

class Kernels {
 public:
  Kernels(std::initializer_list<NamedKernel> kernels) {
    for (const NamedKernel& each : kernels) all_kernels()[each.first] = each.second;
  }
};

}  // namespace flashmob::gpu::cuda
