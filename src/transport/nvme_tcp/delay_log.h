// What a connection knows of the times at which its commands came and its answers went: from looks at its socket and at
// its completions, an upper bound on what the target's thread added to each of them. What its host took (it sends the
// rest later, or reads no answers) is no part of it. One thread, the target's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace flashmob::transport {

// The looks of the loop, and what was found between two of them.
struct DoorLooks {
  std::uint64_t began_ns = 0;  // no look of this round was earlier
  std::uint64_t arrived_ns = 0;  // what polling shows now came no earlier, if its socket was empty then
  std::uint64_t full_ns = 0;  // sockets that polling does not show now were full as late as this
  std::uint64_t posted_ns = 0;  // completions that are found now were posted no earlier
  std::vector<std::uint64_t> delays_ns;  // of commands that were answered in this round
};

class DelayLog {
 public:
  explicit DelayLog(DoorLooks& looks) : looks_(looks) {}

  // --- What is received ---
  void begin_reading() {
    if (!left_) arrived_ns_ = std::max(looks_.arrived_ns, emptied_ns_);
  }
  void received(std::size_t bytes) {
    if (marked_bytes_ == 0) return;
    marked_bytes_ -= std::min(bytes, marked_bytes_);
    if (marked_bytes_ == 0) arrived_ns_ = marked_ns_;
  }
  void emptied() {
    left_ = false;
    marked_bytes_ = 0;
    emptied_ns_ = looks_.began_ns;
  }
  // The socket holds so many bytes still. Whatever comes behind them comes later.
  bool wants_mark() const { return marked_bytes_ == 0; }
  void left(std::size_t bytes) {
    left_ = true;
    if (!wants_mark()) return;
    marked_bytes_ = bytes;
    marked_ns_ = looks_.began_ns;
  }
  // What was received before has waited for its host until now.
  void waited_for_host(std::uint64_t now_ns) { arrived_ns_ = now_ns; }
  std::uint64_t arrived_ns() const { return arrived_ns_; }
  std::size_t answers_held() const { return answers_.size(); }

  // --- What is sent ---
  // What has been offered to the kernel in vain waits for the host as long as polling shows no room.
  void begin_sending(bool has_room) {
    const std::uint64_t until_ns = has_room ? looks_.arrived_ns : looks_.full_ns;
    if (refused_ns_ != 0 && until_ns > refused_ns_) of_host_ns_ += until_ns - refused_ns_;
  }
  void end_sending(bool refused, std::uint64_t now_ns) { refused_ns_ = refused ? now_ns : 0; }
  // Time that the host took, up to now.
  std::uint64_t of_host_ns() const { return of_host_ns_; }
  // From `since_ns`, when of_host_ns() was so much, until now.
  std::uint64_t ours_ns(std::uint64_t since_ns, std::uint64_t of_host_ns, std::uint64_t now_ns) const {
    const std::uint64_t all_ns = now_ns > since_ns ? now_ns - since_ns : 0;
    return all_ns - std::min(all_ns, of_host_ns_ - of_host_ns);
  }

  // --- Answers: they go in the order in which they come ---
  void answer(std::uint64_t delay_ns) { answers_.push_back({delay_ns, looks_.posted_ns, of_host_ns_}); }
  void answered(std::uint64_t now_ns) {
    looks_.delays_ns.push_back(delay_ns(answers_[first_++], now_ns));
    // A host may read so slowly that some answer always waits.
    if (first_ != answers_.size() && first_ < kKeptAnswers) return;
    answers_.erase(answers_.begin(), answers_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  // Calls f(delay_ns) for each answer that was never sent.
  template <class F>
  void for_each_held(std::uint64_t now_ns, F&& f) const {
    for (std::size_t i = first_; i < answers_.size(); ++i) f(delay_ns(answers_[i], now_ns));
  }

 private:
  struct Answer {
    std::uint64_t delay_ns;  // of its command until its doorbell
    std::uint64_t posted_ns;
    std::uint64_t of_host_ns;
  };

  std::uint64_t delay_ns(const Answer& one, std::uint64_t now_ns) const {
    return one.delay_ns + ours_ns(one.posted_ns, one.of_host_ns, now_ns);
  }

  static constexpr std::size_t kKeptAnswers = 4096;

  DoorLooks& looks_;
  std::uint64_t arrived_ns_ = 0;  // of what is being read
  std::uint64_t emptied_ns_ = 0;
  std::uint64_t marked_ns_ = 0;
  std::size_t marked_bytes_ = 0;
  bool left_ = false;
  std::uint64_t refused_ns_ = 0;  // 0: the kernel takes what it is offered
  std::uint64_t of_host_ns_ = 0;
  std::vector<Answer> answers_;
  std::size_t first_ = 0;
};

}  // namespace flashmob::transport
