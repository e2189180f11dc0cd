// The Error Information log of one controller (NVMe Base 2.0c, 5.16.1.2): the latest errors, newest first, and how many
// there ever were. It survives controller resets. Any thread: every unit records failed commands; a mutex guards it,
// because only failures come here.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "nvme/log_page.h"
#include "nvme/status.h"

namespace flashmob::controller {

class ErrorLog {
 public:
  static constexpr std::size_t kEntries = 64;  // ELPE + 1
  using Page = std::array<nvme::ErrorInformationEntry, kEntries>;

  // Adds an entry; the error count and the ring slot are chosen here.
  void record(nvme::ErrorInformationEntry entry);
  Page read() const;
  std::uint64_t total() const;  // entries ever made
  std::uint64_t media_errors() const;  // those of them that lost data: Media and Data Integrity Errors

 private:
  mutable std::mutex mutex_;
  Page ring_{};
  std::uint64_t total_ = 0;
  std::uint64_t media_errors_ = 0;
};

}  // namespace flashmob::controller
