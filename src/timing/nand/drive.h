// A whole NAND drive as a model: requests in, times of completion out.
#pragma once

#include <atomic>
#include <cstdint>

#include "timing/nand/calendar.h"
#include "timing/nand/ftl.h"
#include "timing/nand/params.h"

namespace flashmob::timing::nand {

class Drive {
 public:
  explicit Drive(const Params& params);

  // Requests of `units` units from `first`, of which `bytes` move between host and drive (a Read of one sector moves
  // 512, a Verify nothing). Times are those of the fetch and must not run backwards. They return when the request is
  // done.
  std::uint64_t read(Unit first, std::uint32_t units, std::uint32_t bytes, std::uint64_t now_ns);
  // It begins begin_bytes into its first unit. `durable`: done when it is on the medium, or safe from power loss.
  // `stream` is one of those that are kept apart.
  std::uint64_t write(Unit first, std::uint32_t units, std::uint32_t bytes, std::uint64_t now_ns,
                      std::uint32_t begin_bytes = 0, bool durable = false, std::uint32_t stream = 0);
  // Done when everything written before is safe: at once where capacitors protect the buffer.
  std::uint64_t flush(std::uint64_t now_ns);
  void deallocate(Unit first, std::uint32_t units);
  // Ftl::next_superblock(); takes no time of its own.
  void next_superblock(std::uint32_t stream, std::uint64_t now_ns) { ftl_.next_superblock(stream, now_ns); }

  // These units were written one after another before time began. Cancelled as TimingModel::assume_written().
  void assume_written(Unit first, std::uint32_t units, const std::atomic<bool>* cancelled = nullptr);
  // An empty drive is as if they had been written so, and then overwritten at random so many times.
  void assume_steady(Unit first, std::uint32_t units, double drive_writes,
                     const std::atomic<bool>* cancelled = nullptr) {
    ftl_.assume_steady(first, units, drive_writes, cancelled);
  }
  // Nothing is under way, and time may begin anew; where data lie stays.
  void forget_load();

  const Ftl& ftl() const { return ftl_; }

 private:
  std::uint64_t firmware(std::uint64_t ready_ns);

  const Params params_;
  const std::uint64_t firmware_ticks_;  // a command's share of all cores
  const std::uint64_t link_ticks_per_kib_;
  Calendar cores_;
  Calendar to_host_;
  Calendar to_drive_;
  Ftl ftl_;
};

}  // namespace flashmob::timing::nand
