// A target with an SSD behind it, in one thread and virtual time or with threads and TCP, and a host that speaks PDUs:
// what the tests and the fuzzer of the NVMe/TCP target share. Each host belongs to one thread.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "fabrics/crc32c.h"
#include "fabrics/pdu_reader.h"
#include "fabrics/stream.h"
#include "nvme/admin_command.h"
#include "nvme/fabrics.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"
#include "nvme/registers.h"
#include "nvme/tcp.h"
#include "transport/nvme_tcp/nvme_tcp_target.h"

namespace flashmob::transport::testing {

inline constexpr char kHostNqn[] = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";

// An engine and its clock: what takes long to make, and serves any number of rigs one after the other.
struct RigEngine {
  explicit RigEngine(const DeviceConfig& config, bool threads = false)
      : clock(threads ? Clock::real() : Clock::virtual_from(1'000'000)), engine(config, clock) {}
  Clock clock;
  engine::Engine engine;
};

class Rig {
 public:
  explicit Rig(NvmeTcpTargetOptions options = {}, DeviceConfig config = small_device(), bool threads = false)
      : Rig(std::make_shared<RigEngine>(config, threads), std::move(options), config, threads) {}
  Rig(std::shared_ptr<RigEngine> engine, NvmeTcpTargetOptions options, const DeviceConfig& config, bool threads = false)
      : threads_(threads),
        shared_(std::move(engine)),
        clock_(shared_->clock),
        engine_(shared_->engine),
        subsystem_(config.subsystem, 1, config.timing.unit_bytes) {
    options.port = 0;
    options.buffer_bytes = 16 << 20;
    target_ = std::make_unique<NvmeTcpTarget>(subsystem_, engine_, config.controller, options);
    if (!threads) return;
    engine_.start();
    target_->start();
  }

  static DeviceConfig small_device() {
    DeviceConfig config;
    config.timing.model = "none";
    config.subsystem.namespaces = {NamespaceConfig{.size_bytes = 16 << 20}};
    config.controller.max_queue_pairs = 8;
    return config;
  }

  // Lets target and engine work until neither has anything to do, or for a moment.
  void pump() {
    if (threads_) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      return;
    }
    for (int idle = 0; idle < 2;) {
      bool worked = target_->poll();
      for (unsigned actor = 0; actor < engine_.actors(); ++actor) worked |= engine_.poll_actor(actor);
      clock_.advance_to(clock_.now_ns() + 1000);
      idle = worked ? 0 : idle + 1;
    }
  }
  // How often a host looks in vain before it believes that nothing comes. Without threads, pump() has made everything
  // come that will.
  int patience() const { return threads_ ? 20'000 : 2; }
  // Both ends do not block; ours is returned, the target has the other one.
  int connect() {
    if (threads_) {
      const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(target_->port());
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return -1;
      ::fcntl(socket, F_SETFL, O_NONBLOCK);
      return socket;
    }
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return -1;
    target_->adopt(ends[0]);
    return ends[1];
  }
  void pass_ns(std::uint64_t ns) { clock_.advance_to(clock_.now_ns() + ns); }

  NvmeTcpTarget& target() { return *target_; }
  const NvmeTcpTarget& target() const { return *target_; }
  controller::Subsystem& subsystem() { return subsystem_; }
  engine::Engine& engine() { return engine_; }
  std::size_t controllers() {
    const std::lock_guard lock(subsystem_.mutex());
    return subsystem_.controllers().size();
  }

 private:
  const bool threads_;
  const std::shared_ptr<RigEngine> shared_;
  Clock& clock_;
  engine::Engine& engine_;
  controller::Subsystem subsystem_;
  std::unique_ptr<NvmeTcpTarget> target_;
};

// A PDU as the host got it.
struct Pdu {
  nvme::tcp::PduType type;
  std::vector<std::byte> header;
  std::vector<std::byte> data;
  bool digest_good = true;

  template <class T>
  T as() const {
    T out{};
    std::memcpy(&out, header.data(), std::min(sizeof(out), header.size()));
    return out;
  }
};

struct Reply {
  nvme::Cqe cqe{};
  std::vector<std::byte> data;
  bool by_success_flag = false;

  nvme::Status status() const { return nvme::status_of(static_cast<std::uint16_t>(cqe.status_phase >> 1)); }
};

class Host {
 public:
  explicit Host(Rig& rig) : rig_(rig), socket_(rig.connect()), stream_(socket_), reader_(fabrics::End::host) {}
  // Speaks TLS.
  Host(Rig& rig, const fabrics::TlsPsk& psk) : Host(rig) {
    stream_.secure(std::make_unique<fabrics::TlsSession>(psk));
    std::byte none;
    iovec piece{&none, 1};
    for (int attempts = 0; !secure() && attempts < rig_.patience(); ++attempts) {
      if (stream_.receive({&piece, 1}) == 0) return;
      rig_.pump();
    }
  }
  ~Host() { hang_up(); }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  void hang_up() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  int socket() const { return socket_; }
  bool secure() const { return stream_.tls() != nullptr && stream_.tls()->established(); }
  const std::string& tls_reason() const { return stream_.tls()->reason(); }
  // Gives up where the target reads nothing any more.
  void send(std::span<const std::byte> bytes) {
    for (int refused = 0; !bytes.empty() && socket_ >= 0 && refused < rig_.patience();) {
      iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
      const ssize_t sent = stream_.send({&piece, 1});
      if (sent < 0 && errno != EAGAIN) return;
      refused = sent > 0 ? 0 : refused + 1;
      if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
      if (!bytes.empty()) rig_.pump();
    }
  }
  // The bytes of a PDU as it goes over the wire.
  template <class T>
  std::vector<std::byte> wire(const T& pdu, std::span<const std::byte> data = {}) const {
    std::vector<std::byte> out(fabrics::kMaxWireHeaderBytes);
    out.resize(fabrics::write_header(out.data(), pdu, data.size(), digests_));
    out.insert(out.end(), data.begin(), data.end());
    if (!data.empty() && digests_.data && fabrics::has_digests(pdu.ch.type)) {
      const std::uint32_t digest = fabrics::crc32c(0, data.data(), data.size());
      const auto bytes = std::as_bytes(std::span(&digest, 1));
      out.insert(out.end(), bytes.begin(), bytes.end());
    }
    return out;
  }
  template <class T>
  void send_pdu(const T& pdu, std::span<const std::byte> data = {}) {
    send(wire(pdu, data));
  }

  // The next PDU from the target; nothing when it has none to send.
  std::optional<Pdu> receive() {
    for (int attempts = 0; attempts < rig_.patience();) {
      switch (reader_.next()) {
        case fabrics::PduReader::Event::header:
          incoming_ = {.type = reader_.type(), .header = {}, .data = {}};
          incoming_.header.assign(reader_.header_bytes().begin(), reader_.header_bytes().end());
          incoming_.data.resize(reader_.data_bytes());
          reader_.sink(incoming_.data.data());
          break;
        case fabrics::PduReader::Event::complete:
          incoming_.digest_good = reader_.data_digest_good();
          return std::move(incoming_);
        case fabrics::PduReader::Event::fault:
          broken_ = true;
          return std::nullopt;
        case fabrics::PduReader::Event::need_bytes: {
          std::array<iovec, 8> scratch;
          const auto space = reader_.space(scratch);
          const ssize_t got = stream_.receive(space);
          if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            closed_ = true;
            return std::nullopt;
          }
          if (got > 0) {
            reader_.received(static_cast<std::size_t>(got));
            attempts = 0;
          } else if (++attempts < rig_.patience()) {
            rig_.pump();
          }
          break;
        }
      }
    }
    return std::nullopt;
  }
  // True once the target has closed; what it still sent is dropped.
  bool closed() {
    while (receive()) {
    }
    return closed_;
  }
  bool broken() const { return broken_; }

  // --- Setting up ---
  static nvme::tcp::IcReq ic_req(fabrics::Digests digests = {}, std::uint8_t hpda = 0) {
    auto pdu = fabrics::make_pdu<nvme::tcp::IcReq>(nvme::tcp::PduType::ic_req);
    pdu.dgst = static_cast<std::uint8_t>((digests.header ? nvme::tcp::kDigestHeader : 0) |
                                         (digests.data ? nvme::tcp::kDigestData : 0));
    pdu.hpda = hpda;
    return pdu;
  }
  std::optional<nvme::tcp::IcResp> initialize(fabrics::Digests digests = {}, std::uint8_t hpda = 0) {
    send_pdu(ic_req(digests, hpda));
    const auto answer = receive();
    if (!answer || answer->type != nvme::tcp::PduType::ic_resp) return std::nullopt;
    digests_ = digests;
    reader_.set_digests(digests);
    reader_.set_pda(hpda);
    return answer->as<nvme::tcp::IcResp>();
  }
  static nvme::Sqe connect_sqe(std::uint16_t qid, std::uint16_t entries, std::uint32_t kato_ms = 0,
                               std::uint8_t cattr = 0) {
    nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::connect);
    nvme::encode_connect({.recfmt = 0,
                          .qid = qid,
                          .sqsize = static_cast<std::uint16_t>(entries - 1),
                          .cattr = cattr,
                          .kato_ms = kato_ms},
                         sqe);
    return sqe;
  }
  static nvme::ConnectData connect_data(const std::string& subsystem_nqn, std::uint16_t cntlid = nvme::kCntlidDynamic,
                                        const std::string& host_nqn = kHostNqn) {
    nvme::ConnectData data{};
    data.hostid[0] = 7;
    data.cntlid = cntlid;
    std::memcpy(data.subnqn, subsystem_nqn.data(), subsystem_nqn.size());
    std::memcpy(data.hostnqn, host_nqn.data(), host_nqn.size());
    return data;
  }
  Reply connect(const nvme::Sqe& sqe, const nvme::ConnectData& data) {
    return in_capsule(sqe, std::as_bytes(std::span(&data, 1)));
  }
  // An admin queue with its controller enabled. The controller's identifier; 0 if it failed.
  std::uint16_t attach(std::uint32_t kato_ms = 0, std::uint8_t cattr = 0, const std::string& host_nqn = kHostNqn,
                       std::uint16_t entries = 32) {
    const Reply reply = connect(connect_sqe(0, entries, kato_ms, cattr),
                                connect_data(rig_.subsystem().config().nqn, nvme::kCntlidDynamic, host_nqn));
    if (reply.status() != nvme::Status::success) return 0;
    enable(true);
    return static_cast<std::uint16_t>(reply.cqe.dw0);
  }
  Reply attach_io(std::uint16_t cntlid, std::uint16_t qid = 1, std::uint16_t entries = 16, std::uint8_t cattr = 0) {
    return connect(connect_sqe(qid, entries, 0, cattr), connect_data(rig_.subsystem().config().nqn, cntlid));
  }
  Reply enable(bool on) { return set_property(nvme::kRegCc, nvme::encode_cc({.en = on, .iosqes = 6, .iocqes = 4})); }
  Reply set_property(std::uint32_t offset, std::uint64_t value, bool eight_bytes = false) {
    nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::property_set);
    nvme::encode_property({eight_bytes, offset, value}, sqe);
    return command(sqe);
  }
  Reply get_property(std::uint32_t offset, bool eight_bytes = false) {
    nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::property_get);
    nvme::encode_property({eight_bytes, offset, 0}, sqe);
    return command(sqe);
  }
  std::uint32_t csts() { return get_property(nvme::kRegCsts).cqe.dw0; }

  // --- Commands ---
  static void transport_sgl(nvme::Sqe& sqe, std::uint32_t bytes) {
    sqe.flags = static_cast<std::uint8_t>((sqe.flags & nvme::kFlagFuseMask) | nvme::kFlagPsdtSglBufferMetadata);
    sqe.sgl1 = {.address = 0, .length_bytes = bytes, .reserved = {}, .identifier = nvme::kSglTransportData};
  }
  static void capsule_sgl(nvme::Sqe& sqe, std::uint32_t bytes, std::uint64_t offset = 0) {
    transport_sgl(sqe, bytes);
    sqe.sgl1.address = offset;
    sqe.sgl1.identifier = nvme::kSglInCapsule;
  }
  static nvme::Sqe io(nvme::NvmOpcode opcode, std::uint64_t lba, std::uint32_t blocks) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = 1;
    sqe.cdw10 = static_cast<std::uint32_t>(lba);
    sqe.cdw12 = blocks - 1;
    transport_sgl(sqe, 0);
    return sqe;
  }
  static nvme::Sqe identify(std::uint8_t cns, std::uint32_t nsid = 0) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::identify);
    sqe.nsid = nsid;
    sqe.cdw10 = cns;
    transport_sgl(sqe, 4096);
    return sqe;
  }
  // Sends a command capsule; returns its identifier.
  std::uint16_t submit(nvme::Sqe sqe, std::span<const std::byte> data = {}) {
    auto pdu = fabrics::make_pdu<nvme::tcp::CapsuleCmd>(nvme::tcp::PduType::capsule_cmd);
    sqe.cid = next_cid_++;
    pdu.sqe = sqe;
    send_pdu(pdu, data);
    return sqe.cid;
  }
  Reply in_capsule(nvme::Sqe sqe, std::span<const std::byte> data) {
    capsule_sgl(sqe, static_cast<std::uint32_t>(data.size()));
    return finish(submit(sqe, data), {});
  }
  // A command whose data goes by R2T, or comes by C2HData, or that has none.
  Reply command(const nvme::Sqe& sqe, std::span<const std::byte> out = {}) { return finish(submit(sqe), out); }
  Reply write(std::uint64_t lba, std::span<const std::byte> data) {
    nvme::Sqe sqe = io(nvme::NvmOpcode::write, lba, static_cast<std::uint32_t>(data.size() / 512));
    transport_sgl(sqe, static_cast<std::uint32_t>(data.size()));
    return command(sqe, data);
  }
  Reply read(std::uint64_t lba, std::uint32_t bytes) {
    nvme::Sqe sqe = io(nvme::NvmOpcode::read, lba, bytes / 512);
    transport_sgl(sqe, bytes);
    return command(sqe);
  }

  // Receives until the command is done, answering R2Ts with `out`. A status of kLost if the target says nothing more.
  static constexpr std::uint16_t kLost = 0x7FF;
  Reply finish(std::uint16_t cid, std::span<const std::byte> out) {
    Reply reply;
    reply.cqe.status_phase = kLost << 1;
    while (const auto pdu = receive()) {
      switch (pdu->type) {
        case nvme::tcp::PduType::r2t: {
          const auto r2t = pdu->as<nvme::tcp::R2t>();
          // One of an earlier command stays unanswered.
          if (r2t.cccid == cid && out.size() >= r2t.r2tl) answer(r2t, out);
          break;
        }
        case nvme::tcp::PduType::c2h_data: {
          const auto head = pdu->as<nvme::tcp::Data>();
          if (head.cccid != cid || !pdu->digest_good) return reply;
          reply.data = pdu->data;
          if ((head.ch.flags & nvme::tcp::kFlagSuccess) == 0) break;
          reply.by_success_flag = true;
          reply.cqe.status_phase = 0;
          return reply;
        }
        case nvme::tcp::PduType::capsule_resp: {
          const auto response = pdu->as<nvme::tcp::CapsuleResp>();
          if (response.cqe.cid != cid) {
            others.push_back(response.cqe);
            break;
          }
          reply.cqe = response.cqe;
          return reply;
        }
        default:
          return reply;
      }
    }
    return reply;
  }
  void answer(const nvme::tcp::R2t& r2t, std::span<const std::byte> out, std::uint32_t most = 256 * 1024) {
    for (std::uint32_t at = 0; at < r2t.r2tl;) {
      const std::uint32_t bytes = std::min(most, r2t.r2tl - at);
      send_pdu(h2c(r2t, r2t.r2to + at, bytes, at + bytes == r2t.r2tl), out.subspan(r2t.r2to + at, bytes));
      at += bytes;
    }
  }
  static nvme::tcp::Data h2c(const nvme::tcp::R2t& r2t, std::uint32_t offset, std::uint32_t bytes, bool last) {
    auto pdu = fabrics::make_pdu<nvme::tcp::Data>(nvme::tcp::PduType::h2c_data);
    pdu.ch.flags = last ? nvme::tcp::kFlagLastPdu : std::uint8_t{0};
    pdu.cccid = r2t.cccid;
    pdu.ttag = r2t.ttag;
    pdu.datao = offset;
    pdu.datal = bytes;
    return pdu;
  }
  // The termination request that the target must send now.
  struct Terminated {
    std::uint16_t fes = 0;
    std::uint32_t fei = 0;
    std::vector<std::byte> culprit;
  };
  std::optional<Terminated> terminated() {
    while (const auto pdu = receive()) {
      if (pdu->type != nvme::tcp::PduType::c2h_term_req) continue;
      const auto head = pdu->as<nvme::tcp::TermReq>();
      return Terminated{head.fes, nvme::tcp::fei_of(head), pdu->data};
    }
    return std::nullopt;
  }

  std::deque<nvme::Cqe> others;  // responses that nobody waited for when they came

 private:
  Rig& rig_;
  int socket_;
  fabrics::Stream stream_;
  fabrics::PduReader reader_;
  fabrics::Digests digests_;
  Pdu incoming_{};
  std::uint16_t next_cid_ = 1;
  bool closed_ = false;
  bool broken_ = false;
};

inline std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>((i * 31 + i / 512 + seed) & 0xFF);
  return out;
}

}  // namespace flashmob::transport::testing
