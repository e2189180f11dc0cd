// What a store knows of one key: 28 bytes.
#pragma once

#include <cstdint>

#include "command_set/kv/key.h"

namespace flashmob::command_set::kv {

// Where a value lies, and how long it is.
struct Value {
  std::uint32_t last = 0;  // of its ring of granules
  std::uint32_t bytes = 0;
};

struct Entry {
  Key key;
  Value value;
};

}  // namespace flashmob::command_set::kv
