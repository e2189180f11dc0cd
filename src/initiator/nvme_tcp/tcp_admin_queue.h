// The admin queue of the NVMe/TCP door: passes commands on, keeps back those that only a PCIe controller has, notices
// what others depend on, and keeps the association alive. Same thread rule as TcpQueue.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "initiator/nvme_tcp/tcp_queue.h"
#include "nvme/identify_namespace.h"

namespace flashmob::initiator {

class TcpAdminQueue final : public TcpQueue {
 public:
  // Entries of the queue on the wire: what every controller offers (Base 2.0c, 3.3.2.2).
  static constexpr std::uint32_t kEntries = 32;
  static constexpr std::uint32_t kOwnSlots = 4;  // keep alive, properties, Identify

  // `keep` gets the commands that create and delete I/O queues, and answers them by finish_kept().
  TcpAdminQueue(fabrics::Stream bytes, const TcpStreamLimits& limits, BlockSizes& sizes, std::uint32_t keep_alive_ms,
                std::function<void(const nvme::Sqe&)> keep);

  // Identifies the namespace and tells the block sizes; nothing if that is already under way.
  void look_up(std::uint32_t nsid, const std::function<void()>& done);

  void tick(std::uint64_t now_ns) override;
  std::uint64_t deadline_ns() const override;

 private:
  Screening screen(const nvme::Sqe& sqe) override;
  void observe(const nvme::Cqe& entry) override;

  BlockSizes& sizes_;
  std::uint64_t keep_alive_ns_;  // 0: never
  std::uint64_t next_keep_alive_ns_ = 0;
  bool keep_alive_open_ = false;  // sent and not yet answered
  std::function<void(const nvme::Sqe&)> keep_;
  std::map<std::uint16_t, nvme::Sqe> watched_;  // by CID: commands whose success matters here
  std::map<std::uint32_t, nvme::IdentifyNamespace> look_ups_;  // under way, by namespace
};

}  // namespace flashmob::initiator
