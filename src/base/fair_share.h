// A fixed amount of something that others share (mappings, descriptors, buffers, memory of queues, connections),
// divided so that none of them, nor a few together, can keep it from the next one.
//
// A quarter is never shared: each of the first kAddresses addresses (or processes, or users) that come has an equal
// part of that quarter of its own, and of that each of its first kHosts hosts (or clients) one. What is beyond its own
// part, an address may have up to `most` times what is then left for all others, and a host up to `most` times what its
// address may then still have. Somebody who is alone so gets `most` parts of `most` + 1, and no guest has to be told
// how many there are. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace flashmob {

class FairShare {
 public:
  static constexpr std::uint64_t kAddresses = 8;
  static constexpr std::uint64_t kHosts = 8;

  // `largest` is what somebody may want in one piece.
  explicit FairShare(std::uint64_t amount, std::uint64_t most = 1, std::uint64_t largest = 1)
      : most_(most),
        least_(std::min(amount / (4 * kAddresses), (amount - std::min(amount, largest)) / kAddresses)),
        reserved_(least_ * kAddresses),
        shared_(amount - reserved_) {}

  // What one address holds, or one host of it. Outlives what it holds.
  struct Holder {
    Holder* address = nullptr;  // nullptr: this is an address
    std::uint64_t held = 0;
    std::uint64_t own = 0;  // of that, from the part that nobody else may have
    std::uint64_t shared() const { return held - own; }
  };
  enum class Answer : std::uint8_t {
    given,
    over_share,  // there is some left, for others
    exhausted,
  };

  // With `own_only`, nothing of what is shared: somebody who wants more waits for that.
  Answer take(Holder& holder, std::uint64_t amount, bool own_only = false) {
    Holder& address = holder.address != nullptr ? *holder.address : holder;
    const std::uint64_t own = std::min(amount, own_left(holder, address));
    const std::uint64_t rest = amount - own;
    if (rest != 0) {
      if (own_only) return Answer::exhausted;
      const Answer answer = ask_for(holder, address, rest);
      if (answer != Answer::given) return answer;
    }
    reserved_ -= own;
    shared_ -= rest;
    add(holder, amount, own);
    if (&address != &holder) add(address, amount, own);
    return Answer::given;
  }
  void give(Holder& holder, std::uint64_t amount) {
    // What is one's own is the first that one gets and the last that one gives back.
    const std::uint64_t rest = std::min(amount, holder.shared());
    const std::uint64_t own = amount - rest;
    reserved_ += own;
    shared_ += rest;
    add(holder, -amount, -own);
    if (holder.address != nullptr) add(*holder.address, -amount, -own);
  }
  std::uint64_t free() const { return reserved_ + shared_; }

  // Something taken, given back when it goes.
  class Portion {
   public:
    Portion() = default;
    Portion(FairShare& from, Holder& holder, std::uint64_t amount) : from_(&from), holder_(&holder), amount_(amount) {}
    Portion(Portion&& other) noexcept { *this = std::move(other); }
    Portion& operator=(Portion&& other) noexcept {
      std::swap(from_, other.from_);
      std::swap(holder_, other.holder_);
      std::swap(amount_, other.amount_);
      return *this;
    }
    ~Portion() {
      if (from_ != nullptr) from_->give(*holder_, amount_);
    }

   private:
    FairShare* from_ = nullptr;
    Holder* holder_ = nullptr;
    std::uint64_t amount_ = 0;
  };

 private:
  static std::uint64_t less(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }
  static void add(Holder& holder, std::uint64_t amount, std::uint64_t own) {
    holder.held += amount;
    holder.own += own;
  }

  std::uint64_t own_left(const Holder& holder, const Holder& address) const {
    const std::uint64_t left = std::min(reserved_, less(least_, address.own));
    return &address == &holder ? left : std::min(left, less(least_ / kHosts, holder.own));
  }
  Answer ask_for(const Holder& holder, const Holder& address, std::uint64_t rest) const {
    if (rest > shared_) return address.shared() <= most_ * shared_ ? Answer::exhausted : Answer::over_share;
    // Who holds nothing that others might have gets one piece, however large.
    const std::uint64_t left = shared_ - rest;
    if (address.shared() != 0 && address.shared() + rest > most_ * left) return Answer::over_share;
    const std::uint64_t room = std::min(less(most_ * left, address.shared()), left);
    if (&address != &holder && holder.shared() != 0 && holder.shared() + rest > most_ * room) return Answer::over_share;
    return Answer::given;
  }

  const std::uint64_t most_;
  const std::uint64_t least_;  // of each address alone
  std::uint64_t reserved_;  // of what no address has to share, that which is free
  std::uint64_t shared_;  // of everything else
};

}  // namespace flashmob
