// How often a client may have its INTx line unmasked by an eventfd. The line is asserted by an eventfd, too, and
// clients can tie the two together, in a ring of several of them if need be: the server's thread would then go round
// without an end, and no client with it. A guest's handler comes nowhere near the limit. One thread at a time.
#pragma once

#include <chrono>

namespace flashmob::transport {

class UnmaskPace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr unsigned kMost = 32;  // in each kWindow
  static constexpr std::chrono::milliseconds kWindow{1};

  // False: it has to wait; ask again when the window is over.
  bool may_go(Time now) {
    if (now - begun_ >= kWindow) {
      begun_ = now;
      gone_ = 0;
    }
    return gone_++ < kMost;
  }

 private:
  Time begun_{};
  unsigned gone_ = 0;
};

}  // namespace flashmob::transport
