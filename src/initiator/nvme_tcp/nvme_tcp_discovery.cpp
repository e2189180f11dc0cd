#include "initiator/nvme_tcp/nvme_tcp_discovery.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <thread>

#include "base/check.h"
#include "initiator/nvme_tcp/fabrics_channel.h"
#include "nvme/admin_command.h"
#include "nvme/log_page.h"
#include "nvme/opcode.h"
#include "nvme/registers.h"

namespace flashmob::initiator {
namespace {

constexpr std::size_t kLogPiece = 4096;  // what every controller can transfer
constexpr std::uint64_t kMostEntries = 4096;
constexpr unsigned kAttempts = 10;

void enable(FabricsChannel& channel, std::uint32_t timeout_ms) {
  nvme::Cc cc{.en = true, .iosqes = nvme::kIoSqEntryBytesLog2, .iocqes = nvme::kIoCqEntryBytesLog2};
  channel.set_property(nvme::kRegCc, nvme::encode_cc(cc));
  for (std::uint32_t waited_ms = 0;; ++waited_ms) {
    const nvme::Csts csts = nvme::decode_csts(static_cast<std::uint32_t>(channel.property(nvme::kRegCsts, false)));
    if (csts.rdy) return;
    if (csts.cfs || waited_ms >= timeout_ms) throw FabricsError("the discovery controller does not become ready");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void read_log(FabricsChannel& channel, std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const std::size_t bytes = std::min(out.size(), kLogPiece);
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::get_log_page);
    nvme::encode_get_log_page(
        {.lid = nvme::kLidDiscovery, .rae = true, .numd = static_cast<std::uint32_t>(bytes / 4 - 1), .lpo = offset},
        sqe);
    const nvme::Cqe entry = channel.command(sqe, {}, out.first(bytes));
    if (entry.status_phase >> 1 != 0) throw FabricsError("the controller has no discovery log page");
    out = out.subspan(bytes);
    offset += bytes;
  }
}

}  // namespace

std::vector<nvme::DiscoveryEntry> discover(const NvmeTcpOptions& wanted) {
  NvmeTcpOptions options = wanted;
  options.subsystem_nqn = nvme::kDiscoveryNqn;
  options.secure_channel = false;  // where to find SSDs is asked without
  options = completed(options);
  try {
    FabricsChannel channel(options);
    const nvme::Connect fields{.qid = 0, .sqsize = nvme::kMinAdminQueueEntries - 1, .cattr = 0, .kato_ms = 0};
    channel.connect(fields, options.subsystem_nqn, nvme::kCntlidDynamic);
    enable(channel, options.timeout_ms);
    for (unsigned attempt = 0; attempt < kAttempts; ++attempt) {
      nvme::DiscoveryHeader header;
      read_log(channel, 0, std::as_writable_bytes(std::span(&header, 1)));
      if (header.recfmt != 0 || header.numrec > kMostEntries)
        throw FabricsError("the discovery log page is of an unknown format");
      std::vector<nvme::DiscoveryEntry> entries(header.numrec);
      read_log(channel, sizeof header, std::as_writable_bytes(std::span(entries)));
      // The log may have changed between two pieces; its counter tells.
      nvme::DiscoveryHeader again;
      read_log(channel, 0, std::as_writable_bytes(std::span(&again, 1)));
      if (again.genctr == header.genctr) return entries;
    }
    throw FabricsError("the discovery log page changes faster than it can be read");
  } catch (const FabricsError& error) {
    throw ConfigError("discovery at " + options.address + ":" + std::to_string(options.port) +
                      " failed: " + error.what());
  }
}

}  // namespace flashmob::initiator
