// Load for the tests of the NVMe/TCP door: commands on every queue of a host, and a judge of what comes back.
//
// One thread, the host's.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "doors/nvme_tcp_fixture.h"

namespace flashmob::doors {

// Random writes and reads on every queue at once, each slot in its own part of the namespace; what is read must be what
// was written last.
class Load {
 public:
  // Keeps to the `share`-th of `shares` parts of the namespace.
  Load(Host& host, std::uint64_t seed, std::uint64_t share = 0, std::uint64_t shares = 1) : host_(host), rng_(seed) {
    const std::uint64_t slots = host.pairs.size() * host.depth();
    part_blocks_ = kNamespaceBytes / kBlockBytes / slots / shares;
    first_block_ = share * (kNamespaceBytes / kBlockBytes / shares);
    states_.resize(slots);
  }
  // Keeps all slots busy until so many commands have ended. False if one ended with anything but success.
  bool run(unsigned commands) {
    const std::uint64_t until_ns = Host::now_ns() + 60'000'000'000;
    for (unsigned ended = 0; ended < commands && good_ && Host::now_ns() < until_ns;) {
      refill();
      host_.ring();
      const unsigned count = host_.reap();
      ended += count;
      if (count == 0) std::this_thread::yield();
    }
    return good_;
  }
  // Starts commands in all free slots, and judges what has ended there.
  void refill() {
    for (unsigned q = 0; q < host_.pairs.size(); ++q) {
      for (std::uint32_t i = 0; i < host_.depth(); ++i) {
        if (host_.slot(q, i).busy) continue;
        State& state = states_[q * host_.depth() + i];
        judge(q, i, state);
        next(q, i, state);
      }
    }
  }
  // The commands in flight are no more, and nobody knows how far they came.
  void forget() {
    for (State& state : states_) {
      if (state.open && state.writing) state.written = false;
      state.open = false;
    }
  }
  // What was written before can be read.
  bool check_all() {
    for (unsigned q = 0; q < host_.pairs.size(); ++q) {
      for (std::uint32_t i = 0; i < host_.depth(); ++i) {
        State& state = states_[q * host_.depth() + i];
        if (!state.written) continue;
        host_.submit(q, i, nvme::NvmOpcode::read, state.lba, state.bytes);
        const bool ended = host_.drain();
        const bool right = ended && host_.slot(q, i).status == 0 &&
                           holds_blocks(host_.data(q, i), state.lba, state.bytes, state.version);
        if (right) continue;
        ADD_FAILURE() << (ended ? "read ended with status " : "read does not end, ") << host_.slot(q, i).status
                      << " at " << state.lba << ", " << state.bytes << " bytes";
        return false;
      }
    }
    return true;
  }

 private:
  struct State {
    bool open = false;  // a command is in flight or has just ended
    bool writing = false;
    bool written = false;  // [lba, lba + bytes) holds `version`
    std::uint64_t lba = 0;
    std::uint32_t bytes = 0;
    std::uint64_t version = 0;
  };
  void judge(unsigned q, std::uint32_t i, State& state) {
    if (!std::exchange(state.open, false)) return;
    if (host_.slot(q, i).status != 0) {
      good_ = false;
      state.written = state.written && !state.writing;
    } else if (state.writing) {
      state.written = true;
    } else if (!holds_blocks(host_.data(q, i), state.lba, state.bytes, state.version)) {
      ADD_FAILURE() << "wrong data at " << state.lba;
      good_ = false;
    }
  }
  void next(unsigned q, std::uint32_t i, State& state) {
    state.writing = !state.written || rng_.below(2) == 0;
    if (state.writing) {
      static constexpr std::uint32_t kSizes[] = {512, 4096, 4096, 8192, 16384, 65536, 131072};
      const std::uint64_t slot = q * host_.depth() + i;
      state.bytes = kSizes[rng_.below(std::size(kSizes))];
      state.bytes = std::min<std::uint32_t>(state.bytes, static_cast<std::uint32_t>(part_blocks_ * kBlockBytes));
      state.lba = first_block_ + slot * part_blocks_ + rng_.below(part_blocks_ - state.bytes / kBlockBytes + 1);
      state.version = ++versions_;
      fill_blocks(host_.data(q, i), state.lba, state.bytes, state.version);
    }
    state.open = true;
    host_.submit(q, i, state.writing ? nvme::NvmOpcode::write : nvme::NvmOpcode::read, state.lba, state.bytes);
  }

  Host& host_;
  Rng rng_;
  std::uint64_t part_blocks_;
  std::uint64_t first_block_;
  std::uint64_t versions_ = 0;
  std::vector<State> states_;
  bool good_ = true;
};

}  // namespace flashmob::doors
