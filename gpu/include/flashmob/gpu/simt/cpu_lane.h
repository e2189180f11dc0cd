// What the lanes of both CPU backends have in common: their place in the grid, and the typed faces of the collectives.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "flashmob/gpu/simt/rendezvous.h"
#include "flashmob/gpu/simt/vocabulary.h"

namespace flashmob::gpu::simt {

// Where a lane is.
struct Place {
  std::uint32_t thread_in_block = 0;
  std::uint32_t block = 0;
  Shape shape;
};

// `Backend` offers meet(mask, kind, value, source, here) -> result, which waits for all of the mask.
template <class Backend>
class CpuLane {
 public:
  explicit CpuLane(const Place& place) : place_(place) {}
  CpuLane(const CpuLane&) = delete;
  CpuLane& operator=(const CpuLane&) = delete;

  std::uint32_t lane() const { return place_.thread_in_block % kWarpLanes; }
  std::uint32_t lanes() const {
    return mask_of(place_.shape.block_threads - place_.thread_in_block / kWarpLanes * kWarpLanes);
  }
  std::uint32_t warp() const { return place_.block * warps_per_block() + place_.thread_in_block / kWarpLanes; }
  std::uint32_t warps() const { return place_.shape.blocks * warps_per_block(); }
  std::uint32_t thread() const { return place_.block * place_.shape.block_threads + place_.thread_in_block; }
  std::uint32_t threads() const { return place_.shape.blocks * place_.shape.block_threads; }
  std::uint32_t block() const { return place_.block; }
  std::uint32_t blocks() const { return place_.shape.blocks; }
  std::uint32_t thread_in_block() const { return place_.thread_in_block; }
  std::uint32_t block_threads() const { return place_.shape.block_threads; }
  bool elect(std::uint32_t mask) const { return first_lane(mask) == lane(); }

  void sync(std::uint32_t mask, Here here = Here::current()) { meet(mask, Rendezvous::Kind::sync, 0, 0, here); }
  std::uint32_t ballot(std::uint32_t mask, bool predicate, Here here = Here::current()) {
    return static_cast<std::uint32_t>(meet(mask, Rendezvous::Kind::ballot, predicate ? 1 : 0, 0, here));
  }
  template <class T>
  T shuffle(std::uint32_t mask, T value, std::uint32_t source_lane, Here here = Here::current()) {
    return from_bits<T>(meet(mask, Rendezvous::Kind::shuffle, to_bits(value), source_lane, here));
  }
  // The lanes of mask whose value equals this lane's.
  template <class T>
  std::uint32_t match(std::uint32_t mask, T value, Here here = Here::current()) {
    return static_cast<std::uint32_t>(meet(mask, Rendezvous::Kind::match, to_bits(value), 0, here));
  }

 private:
  template <class T>
  static std::uint64_t to_bits(T value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return bits;
  }
  template <class T>
  static T from_bits(std::uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }
  std::uint64_t meet(std::uint32_t mask, Rendezvous::Kind kind, std::uint64_t value, std::uint32_t source, Here here) {
    return static_cast<Backend*>(this)->meet(mask, kind, value, source, here);
  }
  std::uint32_t warps_per_block() const { return (place_.shape.block_threads + kWarpLanes - 1) / kWarpLanes; }

  Place place_;
};

}  // namespace flashmob::gpu::simt
