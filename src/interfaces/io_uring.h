// io_uring(7): entries are submitted by a system call or seen by a thread of the kernel's, completions come by
// interrupt or are polled for, with or without buffers and files that the kernel was told of before.
//
// Thread rule: as interface.h.
#pragma once

#include <cstdint>
#include <memory>

#include "interfaces/interface.h"

namespace flashmob::interfaces {

// What a ring is asked for, as a set of bits.
inline constexpr unsigned kSqPoll = 1;           // IORING_SETUP_SQPOLL, a thread for each ring
inline constexpr unsigned kIoPoll = 2;           // IORING_SETUP_IOPOLL
inline constexpr unsigned kHybridPoll = 4;       // and IORING_SETUP_HYBRID_IOPOLL
inline constexpr unsigned kFixed = 8;            // registered buffers and files

std::unique_ptr<Interface> make_io_uring_of(const Lane& lane, unsigned mode);

template <unsigned Mode>
std::unique_ptr<Interface> make_io_uring(const Lane& lane) {
  return make_io_uring_of(lane, Mode);
}

}  // namespace flashmob::interfaces
