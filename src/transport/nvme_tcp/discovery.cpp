#include "transport/nvme_tcp/discovery.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "nvme/admin_command.h"
#include "nvme/features.h"
#include "nvme/identify_controller.h"
#include "nvme/log_page.h"
#include "nvme/opcode.h"
#include "nvme/registers.h"

namespace flashmob::transport {
namespace {

using nvme::Status;

constexpr std::uint16_t kQueueEntries = 128;
constexpr std::uint32_t kEventRequests = 4;
constexpr std::uint64_t kCap =
    nvme::encode_cap({.mqes = kQueueEntries - 1, .cqr = true, .to = 20, .css = nvme::kCapCssNvm});

template <std::size_t N>
void put_text(char (&field)[N], std::string_view text, char pad) {
  std::memset(field, pad, N);
  std::copy_n(text.begin(), std::min(N, text.size()), field);
}

template <class T>
void append(std::vector<std::byte>& to, const T& structure) {
  const std::size_t at = to.size();
  to.resize(at + sizeof(T));
  std::memcpy(to.data() + at, &structure, sizeof(T));
}

DiscoveryController::Answer failed(Status status) {
  return {.status = status, .dw0 = 0, .data = {}, .deferred = false};
}
DiscoveryController::Answer value(std::uint32_t dw0) {
  return {.status = Status::success, .dw0 = dw0, .data = {}, .deferred = false};
}

}  // namespace

DiscoveryController::DiscoveryController(std::vector<DiscoveryRecord> records, std::uint64_t generation,
                                         std::uint32_t keep_alive_ms)
    : records_(std::move(records)), generation_(generation), keep_alive_ms_(keep_alive_ms) {}

std::uint64_t DiscoveryController::read_property(std::uint32_t offset) const {
  switch (offset) {
    case nvme::kRegCap:
      return kCap;
    case nvme::kRegVs:
      return nvme::kVersion20;
    case nvme::kRegCc:
      return cc_;
    case nvme::kRegCsts:
      return csts_;
    default:
      return 0;
  }
}

void DiscoveryController::write_cc(std::uint32_t value, std::uint64_t now_ms) {
  const nvme::Cc before = nvme::decode_cc(cc_);
  const nvme::Cc cc = nvme::decode_cc(value);
  cc_ = value;
  // A reset takes back the shutdown before it; what SHN still says from then is no new one.
  std::uint8_t shst = cc.en == before.en ? nvme::decode_csts(csts_).shst : nvme::kCstsShstNormal;
  if (cc.shn != nvme::kCcShnNone && cc.shn != before.shn) shst = nvme::kCstsShstComplete;
  csts_ = nvme::encode_csts({.rdy = cc.en, .shst = shst});
  if (!cc.en) {
    async_events_ = 0;
    event_requests_ = 0;
  }
  restart_keep_alive(now_ms);
}

void DiscoveryController::restart_keep_alive(std::uint64_t now_ms) {
  deadline_ms_ = keep_alive_ms_ == 0 ? UINT64_MAX : now_ms + keep_alive_ms_;
}

DiscoveryController::Answer DiscoveryController::execute(const nvme::Sqe& sqe, std::uint32_t bytes,
                                                         std::uint64_t now_ms) {
  if (!nvme::decode_csts(csts_).rdy) return failed(Status::command_sequence_error);
  switch (static_cast<nvme::AdminOpcode>(sqe.opcode)) {
    case nvme::AdminOpcode::identify: {
      if (nvme::decode_identify(sqe).cns != static_cast<std::uint8_t>(nvme::Cns::identify_controller))
        return failed(Status::invalid_field);
      if (bytes < nvme::kIdentifyBytes) return failed(Status::data_sgl_length_invalid);
      return {.status = Status::success, .dw0 = 0, .data = identify(), .deferred = false};
    }
    case nvme::AdminOpcode::get_log_page:
      return get_log_page(sqe, bytes);
    case nvme::AdminOpcode::keep_alive:
      restart_keep_alive(now_ms);
      return value(0);
    case nvme::AdminOpcode::set_features:
      return set_features(sqe, now_ms);
    case nvme::AdminOpcode::get_features:
      return get_features(sqe);
    case nvme::AdminOpcode::async_event_request: {
      // The log is that of the moment at which the host came, so the event never comes.
      if (event_requests_ == kEventRequests) return failed(Status::async_event_limit_exceeded);
      ++event_requests_;
      Answer answer = value(0);
      answer.deferred = true;
      return answer;
    }
    default:
      return failed(Status::invalid_opcode);
  }
}

std::vector<std::byte> DiscoveryController::identify() const {
  nvme::IdentifyController c{};
  put_text(c.sn, "", ' ');
  put_text(c.mn, "flashmob discovery", ' ');
  put_text(c.fr, FLASHMOB_VERSION, ' ');
  c.mdts = 4;  // kMaxLogBytes
  c.cntlid = kCntlid;
  c.ver = nvme::kVersion20;
  c.oaes = nvme::kOaesDiscoveryLogChanged;
  c.ctratt = nvme::kCtrattHostId128;
  c.cntrltype = nvme::kCntrltypeDiscovery;
  c.aerl = kEventRequests - 1;
  c.lpa = nvme::kLpaExtendedData;
  c.kas = 1;
  c.maxcmd = kQueueEntries;
  c.sgls = nvme::kSglsSupported | nvme::kSglsOffset | nvme::kSglsTransportDataBlock;
  put_text(c.subnqn, nvme::kDiscoveryNqn, '\0');
  std::vector<std::byte> data;
  append(data, c);
  return data;
}

std::vector<std::byte> DiscoveryController::log_page() const {
  nvme::DiscoveryHeader header{};
  header.genctr = generation_;
  header.numrec = records_.size();
  std::vector<std::byte> data;
  append(data, header);
  std::uint16_t port_id = 0;
  for (const DiscoveryRecord& record : records_) {
    nvme::DiscoveryEntry entry{};
    entry.trtype = nvme::kTrtypeTcp;
    entry.adrfam = record.at.ipv6 ? nvme::kAdrfamIpv6 : nvme::kAdrfamIpv4;
    entry.subtype = nvme::kSubtypeNvm;
    entry.treq = static_cast<std::uint8_t>(
        (record.secure ? nvme::kTreqSecureChannelRequired : nvme::kTreqSecureChannelNotRequired) |
        nvme::kTreqNoFlowControl);
    entry.tsas[0] = record.secure ? nvme::kTsasTls13 : std::uint8_t{0};
    entry.portid = ++port_id;
    entry.cntlid = nvme::kCntlidDynamic;
    entry.asqsz = nvme::kMinAdminQueueEntries;
    put_text(entry.trsvcid, std::to_string(record.at.port), ' ');
    put_text(entry.subnqn, record.subsystem_nqn, '\0');
    put_text(entry.traddr, record.at.address, ' ');
    append(data, entry);
  }
  return data;
}

DiscoveryController::Answer DiscoveryController::get_log_page(const nvme::Sqe& sqe, std::uint32_t bytes) const {
  const nvme::GetLogPage f = nvme::decode_get_log_page(sqe);
  if (f.lid != nvme::kLidDiscovery) return failed(Status::invalid_log_page);
  const std::uint64_t wanted = (std::uint64_t{f.numd} + 1) * 4;
  if (wanted > kMaxLogBytes || f.lpo % 4 != 0) return failed(Status::invalid_field);
  if (bytes < wanted) return failed(Status::data_sgl_length_invalid);
  std::vector<std::byte> page = log_page();
  if (f.lpo > page.size()) return failed(Status::invalid_field);
  page.erase(page.begin(), page.begin() + static_cast<std::ptrdiff_t>(f.lpo));
  page.resize(wanted);
  return {.status = Status::success, .dw0 = 0, .data = std::move(page), .deferred = false};
}

DiscoveryController::Answer DiscoveryController::set_features(const nvme::Sqe& sqe, std::uint64_t now_ms) {
  switch (static_cast<nvme::Feature>(nvme::feature_id(sqe.cdw10))) {
    case nvme::Feature::keep_alive_timer:
      keep_alive_ms_ = sqe.cdw11;
      restart_keep_alive(now_ms);
      return value(0);
    case nvme::Feature::async_event_configuration:
      async_events_ = sqe.cdw11 & nvme::kOaesDiscoveryLogChanged;
      return value(0);
    default:
      return failed(Status::invalid_field);
  }
}

DiscoveryController::Answer DiscoveryController::get_features(const nvme::Sqe& sqe) const {
  switch (static_cast<nvme::Feature>(nvme::feature_id(sqe.cdw10))) {
    case nvme::Feature::keep_alive_timer:
      return value(keep_alive_ms_);
    case nvme::Feature::async_event_configuration:
      return value(async_events_);
    default:
      return failed(Status::invalid_field);
  }
}

}  // namespace flashmob::transport
