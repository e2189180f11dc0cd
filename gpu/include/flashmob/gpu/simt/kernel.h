// What a kernel is given, read from its functor: so that host code may launch it with arguments that convert, and a
// kernel compiled in another library is found by its functor's type alone.
#pragma once

#include <tuple>
#include <type_traits>

namespace flashmob::gpu::simt {
namespace detail {

template <class Member>
struct KernelMember;
template <class Functor, class Lane, class... Args>
struct KernelMember<void (Functor::*)(Lane&, Args...) const> {
  using Parameters = std::tuple<std::remove_cv_t<std::remove_reference_t<Args>>...>;
  static constexpr bool kIsCopiedBytewise =
      std::is_trivially_copyable_v<Functor> &&
      (std::is_trivially_copyable_v<std::remove_cv_t<std::remove_reference_t<Args>>> && ...);
};

}  // namespace detail

// The tuple of the types that `Functor::operator()(Lane&, ...) const` takes after its lane.
template <class Functor, class Lane>
using KernelParameters = typename detail::KernelMember<decltype(&Functor::template operator()<Lane>)>::Parameters;

// Others wait for this kernel while it runs, so all of its blocks must be on the GPU at once, and stay there.
template <class Functor>
inline constexpr bool kStaysResident = requires { Functor::kStaysResident; };

// A GPU gets its arguments as bytes.
template <class Functor, class Lane>
inline constexpr bool kIsCopiedBytewise =
    detail::KernelMember<decltype(&Functor::template operator()<Lane>)>::kIsCopiedBytewise;

}  // namespace flashmob::gpu::simt
