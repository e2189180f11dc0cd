// Where a key is looked for: SipHash-1-3 (Aumasson and Bernstein, 2012), with a secret of the store's own. A host that
// chooses keys cannot make them collide, for it does not know the secret.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "command_set/kv/key.h"

namespace flashmob::command_set::kv {

class KeyHash {
 public:
  explicit KeyHash(const std::array<std::uint64_t, 2>& secret) : secret_(secret) {}

  std::uint64_t operator()(const Key& key) const {
    std::array<std::uint64_t, 2> words;
    std::memcpy(words.data(), key.bytes.data(), sizeof(words));
    State s{secret_[0] ^ 0x736F6D6570736575ull, secret_[1] ^ 0x646F72616E646F6Dull, secret_[0] ^ 0x6C7967656E657261ull,
            secret_[1] ^ 0x7465646279746573ull};
    // The length says which of the padding is the key's.
    for (const std::uint64_t word : {words[0], words[1], std::uint64_t{key.length} << 56}) {
      s.d ^= word;
      s.round();
      s.a ^= word;
    }
    s.c ^= 0xFF;
    for (int i = 0; i < 3; ++i) s.round();
    return s.a ^ s.b ^ s.c ^ s.d;
  }

 private:
  struct State {
    std::uint64_t a, b, c, d;
    void round() {
      a += b;
      b = std::rotl(b, 13) ^ a;
      a = std::rotl(a, 32);
      c += d;
      d = std::rotl(d, 16) ^ c;
      a += d;
      d = std::rotl(d, 21) ^ a;
      c += b;
      b = std::rotl(b, 17) ^ c;
      c = std::rotl(c, 32);
    }
  };
  std::array<std::uint64_t, 2> secret_;
};

}  // namespace flashmob::command_set::kv
