// Who takes turns: whoever joins comes after all who wait already, also if it only just had a turn and left.
//
// For one thread. Joining and leaving move as many pointers as there are members.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace flashmob::engine {

template <class Member>
class Turns {
 public:
  // Room for so many, so that joining allocates nothing.
  void reserve(std::size_t members) { members_.reserve(members); }
  bool empty() const { return members_.empty(); }
  // Whose turn it is; there is one.
  Member& current() const { return *members_[at_]; }
  // It is not among them.
  void join(Member& member) {
    // The last place is the one just before whose turn it is, wherever that lies.
    members_.insert(members_.begin() + static_cast<std::ptrdiff_t>(at_), &member);
    if (members_.size() > 1) ++at_;
  }
  // The turn is over, and it is the next one's.
  void pass(bool leaves) {
    if (leaves)
      members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(at_));
    else
      ++at_;
    if (at_ >= members_.size()) at_ = 0;
  }
  // Whoever it is, if it is among them.
  void remove(const Member& member) {
    const auto found = std::find(members_.begin(), members_.end(), &member);
    if (found == members_.end()) return;
    const auto at = static_cast<std::size_t>(found - members_.begin());
    members_.erase(found);
    if (at < at_) --at_;
    if (at_ >= members_.size()) at_ = 0;
  }
  // All of them, in no order that means anything.
  auto begin() const { return members_.begin(); }
  auto end() const { return members_.end(); }

 private:
  std::vector<Member*> members_;
  std::size_t at_ = 0;
};

}  // namespace flashmob::engine
