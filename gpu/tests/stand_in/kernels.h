// What runs device code where CUDA's own compiler is not there: kernels as fibres of the emulated GPU (gpu.h). Takes
// the place of simt/detail/cuda_lane.h where FLASHMOB_CUDA_STAND_IN is defined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "cuda_runtime.h"
#include "flashmob/gpu/simt/fibre.h"
#include "flashmob/gpu/simt/kernel.h"

namespace flashmob::gpu::stand_in {

// One kernel: what CUDA's entry points are addresses of.
struct Entry {
  using Start = std::function<std::uint64_t(simt::FibreDevice&)>;

  const char* name;
  // Copies the arguments, as a launch does.
  Start (*bind)(const simt::Shape& shape, void** arguments);
  std::uint32_t registers;    // of a thread
  std::uint32_t local_bytes;  // likewise
  bool waits_for_others;      // all of its blocks must be there at once
};

template <class Functor, class Parameters>
struct EntryOf;
template <class Functor, class... Args>
struct EntryOf<Functor, std::tuple<Args...>> {
  static Entry::Start bind(const simt::Shape& shape, void** arguments) {
    return bind(shape, arguments, std::index_sequence_for<Args...>());
  }
  static std::uint32_t registers() {
    if constexpr (requires { Functor::kMaxRegisters; })
      return Functor::kMaxRegisters;
    else
      return 64;
  }
  static std::uint32_t local_bytes() {
    if constexpr (requires { Functor::kLocalBytes; })
      return Functor::kLocalBytes;
    else
      return 0;
  }
  static inline const Entry entry{typeid(Functor).name(), &bind, registers(), local_bytes(),
                                  simt::kStaysResident<Functor>};

 private:
  template <std::size_t... I>
  static Entry::Start bind(const simt::Shape& shape, [[maybe_unused]] void** arguments, std::index_sequence<I...>) {
    return [shape, functor = *static_cast<const Functor*>(arguments[0]),
            parameters = std::tuple<Args...>(*static_cast<const Args*>(arguments[I + 1])...)](simt::FibreDevice& on) {
      return std::apply([&](const Args&... each) { return on.launch(shape, functor, each...); }, parameters);
    };
  }
};

}  // namespace flashmob::gpu::stand_in

namespace flashmob::gpu::simt {

using CudaLane = FibreLane;

namespace detail {

template <class Functor>
const void* cuda_entry() {
  static_assert(kIsCopiedBytewise<Functor, CudaLane>, "what a kernel is given is copied to the GPU byte by byte");
  return &stand_in::EntryOf<Functor, KernelParameters<Functor, CudaLane>>::entry;
}

}  // namespace detail
}  // namespace flashmob::gpu::simt
