// What the CPU backends throw when device code can never finish, or is wrong on a GPU.
#pragma once

#include <stdexcept>

namespace flashmob::gpu::simt {

// Nothing can go on. what() lists, by source line, which lanes wait there and for what.
class StuckError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Two lanes came to the same plain memory, one of them to change it, and nothing says who was first. what() names both.
class RaceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace flashmob::gpu::simt
