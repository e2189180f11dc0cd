// A fixed amount of something that hosts share (buffers, memory of queues, connections), divided so that none of them,
// nor a few together, can keep it from the next one: an address may hold as much as would be left for the others, and a
// host at that address as much as the address may still have. A host that is alone so gets a third of everything at
// least, and no guest has to be told how many there are. One thread.
#pragma once

#include <cstdint>
#include <utility>

namespace flashmob::transport {

class FairShare {
 public:
  explicit FairShare(std::uint64_t amount) : free_(amount) {}

  // What one address holds, or one host of it. Outlives what it holds.
  struct Holder {
    Holder* address = nullptr;  // nullptr: this is an address
    std::uint64_t held = 0;
  };
  enum class Answer : std::uint8_t {
    given,
    over_share,  // there is some left, for others
    exhausted,
  };

  Answer take(Holder& holder, std::uint64_t amount) {
    if (amount > free_) return Answer::exhausted;
    const Holder& address = holder.address != nullptr ? *holder.address : holder;
    if (address.held != 0 && address.held + amount > free_) return Answer::over_share;
    const std::uint64_t room = free_ - (address.held < free_ ? address.held : free_);
    if (&address != &holder && (amount > room || (holder.held != 0 && holder.held + amount > room)))
      return Answer::over_share;
    free_ -= amount;
    holder.held += amount;
    if (holder.address != nullptr) holder.address->held += amount;
    return Answer::given;
  }
  void give(Holder& holder, std::uint64_t amount) {
    free_ += amount;
    holder.held -= amount;
    if (holder.address != nullptr) holder.address->held -= amount;
  }
  std::uint64_t free() const { return free_; }

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
  std::uint64_t free_;
};

}  // namespace flashmob::transport
