// Which requests of a queue went to another place than was drawn, in their order: a few bytes for each, because
// the yardstick of a run that lasts for minutes must know them all.
//
// Two numbers for a request, seven bits a byte, the last byte of each below 0x80: how many requests after the one
// before it was drawn, and its place. For one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flashmob::load {

// A request that went to another place than was drawn, to be verified; counted from its queue's first.
struct MovedIo {
  std::uint64_t turn;
  std::uint64_t slba;
  bool operator==(const MovedIo&) const = default;
};

class MovedList {
 public:
  static constexpr std::size_t kMostBytesEach = 20;

  // Makes room, of which pages are used as they are needed.
  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }
  // Allocates nothing: false if there is no room. Turns grow.
  bool note(MovedIo io) {
    if (bytes_.capacity() - bytes_.size() < kMostBytesEach) return false;
    put(io.turn - last_turn_);
    put(io.slba);
    last_turn_ = io.turn;
    return true;
  }

  // From the first to the last; the list outlives it and stays as it is.
  class Reader {
   public:
    explicit Reader(const MovedList* list = nullptr) : list_(list) { advance(); }
    // The next request if it is that one. Asked in the order of turns.
    bool take(std::uint64_t turn, std::uint64_t& slba) {
      if (!has_ || next_.turn != turn) return false;
      slba = next_.slba;
      advance();
      return true;
    }

   private:
    void advance() {
      has_ = list_ != nullptr && at_ < list_->bytes_.size();
      if (!has_) return;
      next_.turn += get();
      next_.slba = get();
    }
    std::uint64_t get() {
      std::uint64_t value = 0;
      for (unsigned shift = 0;; shift += 7) {
        const std::uint8_t byte = list_->bytes_[at_++];
        value |= std::uint64_t{byte & 0x7Fu} << shift;
        if (byte < 0x80) return value;
      }
    }

    const MovedList* list_;
    std::size_t at_ = 0;
    bool has_ = false;
    MovedIo next_{};
  };

 private:
  void put(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<std::uint8_t>(value | 0x80));
    bytes_.push_back(static_cast<std::uint8_t>(value));
  }

  std::vector<std::uint8_t> bytes_;
  std::uint64_t last_turn_ = 0;
};

}  // namespace flashmob::load
