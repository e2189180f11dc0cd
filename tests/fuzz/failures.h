// What a fuzz target makes the process run out of, at a moment of the input's choice: memory, mappings, descriptors.
// The linker sends every request of the program through failures.cpp, for mappings through kept_mappings.cpp, for
// files in memory through kept_files.cpp (--wrap, see CMakeLists.txt), under sanitizers too.
//
// Of the thread that arms it; the others get what they ask for.
#pragma once

#include <cstdint>

namespace flashmob::fuzz {

enum class Lack : std::uint8_t { memory, mappings, descriptors };

// While it lives, the request number `after` (0: the first) for what is lacking fails, once.
class Failure {
 public:
  Failure(Lack what, unsigned after);
  ~Failure();
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;
};

// Whether the mapping that is asked for now is to fail. Weak: programs without failures.cpp have none.
[[gnu::weak]] bool mapping_fails();
// Likewise the descriptor.
[[gnu::weak]] bool descriptor_fails();

}  // namespace flashmob::fuzz
