// The discovery controller: tells hosts which subsystem is where (NVMe Base 2.0c, clauses 3.1.2.3 and 5.16.1.23). It
// has an admin queue and nothing else; the target answers its commands itself. One thread, the target's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "nvme/command.h"
#include "nvme/fabrics.h"
#include "nvme/status.h"
#include "transport/nvme_tcp/keep_alive.h"

namespace flashmob::transport {

// Where a subsystem is to be found.
struct DiscoveryAddress {
  std::string address;
  std::uint16_t port;
  bool ipv6;
};

// A subsystem that the log names.
struct DiscoveryRecord {
  DiscoveryAddress at;
  std::string subsystem_nqn;
  bool secure;  // by TLS only
};

class DiscoveryController {
 public:
  static constexpr std::uint16_t kCntlid = 0xFFE0;
  static constexpr std::uint32_t kMaxLogBytes = 64 * 1024;

  // The log stays what it is for as long as the host stays.
  DiscoveryController(std::vector<DiscoveryRecord> records, std::uint64_t generation, std::uint32_t keep_alive_ms);

  struct Answer {
    nvme::Status status = nvme::Status::success;
    std::uint32_t dw0 = 0;
    std::vector<std::byte> data;  // what the host gets
    bool deferred = false;        // an event request, which waits for an event
  };
  // `bytes` is the length of the command's buffer.
  Answer execute(const nvme::Sqe& sqe, std::uint32_t bytes, std::uint64_t now_ms);
  // Properties, as of a controller: CC and CSTS are all that changes.
  std::uint64_t read_property(std::uint32_t offset) const;
  void write_cc(std::uint32_t value, std::uint64_t now_ms);
  bool is_watched() const { return deadline_ms_ != UINT64_MAX && is_kept_alive(keep_alive_ms_); }
  bool expired(std::uint64_t now_ms) const { return now_ms >= deadline_ms_; }

 private:
  void restart_keep_alive(std::uint64_t now_ms);
  std::vector<std::byte> identify() const;
  std::vector<std::byte> log_page() const;
  Answer get_log_page(const nvme::Sqe& sqe, std::uint32_t bytes) const;
  Answer set_features(const nvme::Sqe& sqe, std::uint64_t now_ms);
  Answer get_features(const nvme::Sqe& sqe) const;

  std::vector<DiscoveryRecord> records_;
  std::uint64_t generation_;
  std::uint32_t keep_alive_ms_;
  std::uint32_t async_events_ = 0;
  std::uint32_t event_requests_ = 0;
  std::uint32_t cc_ = 0;
  std::uint32_t csts_ = 0;
  std::uint64_t deadline_ms_ = UINT64_MAX;
};

}  // namespace flashmob::transport
