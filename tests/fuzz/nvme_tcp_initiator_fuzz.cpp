// libFuzzer target: a hostile NVMe/TCP controller at the receiving half of the initiator. The input says which commands
// a host starts, which bytes and which almost right PDUs the controller sends, in pieces of any size, and when the host
// takes its memory away. Nothing may crash, every command ends exactly once, and memory that no read command was given
// stays as it is.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "fuzz/input.h"
#include "fuzz/kept_mappings.h"
#include "fuzz/socket_pairs.h"
#include "initiator/nvme_tcp/tcp_stream.h"
#include "nvme/opcode.h"

namespace {

using namespace flashmob;
using flashmob::fuzz::Input;
namespace tcp = nvme::tcp;

constexpr std::uint64_t kIova = 0x100000;
constexpr std::size_t kMemoryBytes = 256 << 10;
constexpr std::size_t kReadBytes = 128 << 10;  // reads go to the first half, writes come from the second
constexpr std::byte kUntouched{0xA5};
constexpr std::size_t kMaxPieces = 48;  // of what is sent at once

// The host's memory lives as long as the process. What an input has touched of it is put back after it.
std::byte* host_memory() {
  static std::vector<std::byte> memory(kMemoryBytes, kUntouched);
  return memory.data();
}

class Attack final : public initiator::TcpStream::Owner {
 public:
  explicit Attack(Input input) : input_(input), reader_(space_) {
    const auto shape = input_.take<std::uint8_t>();
    limits_.digests = {(shape & 1) != 0, (shape & 2) != 0};
    limits_.cpda = (shape & 4) != 0 ? 3 : 0;
    limits_.in_capsule_bytes = (shape & 8) != 0 ? 8192 : 0;
    int fds[2];
    FLASHMOB_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    peer_ = fds[1];
    stream_ = std::make_unique<initiator::TcpStream>(fabrics::Stream(fds[0]), limits_, *this);
    space_.map(kIova, kMemoryBytes, memory_);
  }
  ~Attack() {
    ::close(peer_);
    if (reads_) std::memset(memory_, static_cast<int>(kUntouched), kReadBytes);
  }

  void run() {
    while (!input_.empty() && !stream_->lost()) step();
    stream_->lose("the end");
    FLASHMOB_CHECK(open_ == 0 && stream_->in_flight() == 0);
    // All of it is like its first byte, if each byte is like the one before.
    const std::byte* const kept = memory_ + (reads_ ? kReadBytes : 0);
    const std::size_t bytes = kMemoryBytes - (reads_ ? kReadBytes : 0);
    FLASHMOB_CHECK(kept[0] == kUntouched && std::memcmp(kept, kept + 1, bytes - 1) == 0);
  }

 private:
  void completed(const nvme::Cqe& entry) override {
    FLASHMOB_CHECK(entry.cid < 16 && (busy_ >> entry.cid & 1) != 0);
    busy_ &= ~(1u << entry.cid);
    --open_;
  }

  void step() {
    switch (input_.take<std::uint8_t>() % 10) {
      case 0:
      case 1:
        start();
        break;
      case 2:
        send_noise();
        break;
      case 3:
        send_response();
        break;
      case 4:
      case 5:
        send_data();
        break;
      case 6:
      case 7:
        send_r2t();
        break;
      case 8:
        remap();
        break;
      case 9:
        drain();
        break;
    }
    turn();
  }

  void turn() {
    reader_.enter();
    stream_->receive(reader_);
    stream_->send(reader_);
    reader_.leave();
  }

  void start() {
    if (!stream_->can_start()) return;
    const auto shape = input_.take<std::uint8_t>();
    nvme::Sqe sqe{};
    sqe.cid = shape & 15;
    const std::uint64_t bytes = 512ull << ((shape >> 4) & 7);
    const bool read = (shape & 0x80) != 0;
    sqe.opcode = static_cast<std::uint8_t>(read ? nvme::NvmOpcode::read : nvme::NvmOpcode::write);
    sqe.flags = nvme::kFlagPsdtSglBufferMetadata;
    sqe.sgl1.address = kIova + (read ? 0 : kReadBytes) + input_.take<std::uint8_t>() * 4u;
    sqe.sgl1.length_bytes = static_cast<std::uint32_t>(bytes);
    reader_.enter();
    const nvme::Status status =
        stream_->start(reader_, sqe, {read ? initiator::DataWay::from_device : initiator::DataWay::to_device, bytes});
    reader_.leave();
    FLASHMOB_CHECK((busy_ >> sqe.cid & 1) == 0 || status == nvme::Status::command_id_conflict);
    if (status != nvme::Status::success) return;
    reads_ |= read;
    busy_ |= 1u << sqe.cid;
    ++open_;
    moved_[sqe.cid] = 0;
  }

  // Sends in pieces, with the stream's turn between them.
  void put(const std::vector<std::byte>& bytes) {
    const std::size_t piece = std::size_t{1} << (input_.take<std::uint8_t>() % 14);
    std::size_t pieces = 0;
    for (std::size_t at = 0; at < bytes.size() && !stream_->lost();) {
      const std::size_t length = ++pieces == kMaxPieces ? bytes.size() - at : std::min(piece, bytes.size() - at);
      const ssize_t sent = ::send(peer_, bytes.data() + at, length, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent <= 0) break;
      at += static_cast<std::size_t>(sent);
      turn();
    }
  }
  template <class Pdu>
  void put_pdu(Pdu pdu, std::size_t data_bytes) {
    std::vector<std::byte> bytes(fabrics::kMaxWireHeaderBytes);
    bytes.resize(fabrics::write_header(bytes.data(), pdu, data_bytes, limits_.digests));
    const std::size_t header_bytes = bytes.size();
    bytes.resize(header_bytes + data_bytes, std::byte{7});
    if (limits_.digests.data && data_bytes != 0) {
      const std::uint32_t digest = fabrics::crc32c(0, bytes.data() + header_bytes, data_bytes);
      const auto* at = reinterpret_cast<const std::byte*>(&digest);
      bytes.insert(bytes.end(), at, at + sizeof digest);
    }
    // Now and then one byte is another.
    const auto damage = input_.take<std::uint16_t>();
    if (damage % 8 == 1) bytes[damage / 8 % bytes.size()] ^= static_cast<std::byte>(input_.take<std::uint8_t>());
    put(bytes);
  }

  void send_noise() {
    std::vector<std::byte> bytes(input_.take<std::uint8_t>());
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(input_.take<std::uint8_t>());
    put(bytes);
  }
  void send_response() {
    auto pdu = fabrics::make_pdu<tcp::CapsuleResp>(tcp::PduType::capsule_resp);
    pdu.cqe.cid = input_.take<std::uint8_t>() % 17;
    pdu.cqe.status_phase = input_.take<std::uint8_t>();
    put_pdu(pdu, 0);
  }
  void send_data() {
    auto pdu = fabrics::make_pdu<tcp::Data>(tcp::PduType::c2h_data);
    const auto shape = input_.take<std::uint8_t>();
    pdu.cccid = shape & 15;
    pdu.ch.flags = static_cast<std::uint8_t>((shape >> 4 & 3) << 2);
    std::uint32_t bytes = input_.take<std::uint16_t>();
    if ((shape & 0x40) != 0) bytes = 512u << (bytes % 8);
    pdu.datao = (shape & 0x80) != 0 ? input_.take<std::uint32_t>() : moved_[pdu.cccid];
    pdu.datal = bytes;
    moved_[pdu.cccid] += bytes;
    put_pdu(pdu, bytes);
  }
  void send_r2t() {
    auto pdu = fabrics::make_pdu<tcp::R2t>(tcp::PduType::r2t);
    const auto shape = input_.take<std::uint8_t>();
    pdu.cccid = shape & 15;
    pdu.ttag = shape;
    pdu.r2tl = (shape & 0x40) != 0 ? input_.take<std::uint32_t>() : 512u << (input_.take<std::uint8_t>() % 8);
    pdu.r2to = (shape & 0x80) != 0 ? input_.take<std::uint32_t>() : moved_[pdu.cccid];
    moved_[pdu.cccid] += pdu.r2tl;
    put_pdu(pdu, 0);
  }
  void remap() {
    if (mapped_) {
      space_.unmap(kIova, kMemoryBytes);
    } else {
      space_.map(kIova, kMemoryBytes, memory_);
    }
    mapped_ = !mapped_;
  }
  // Reads what the host has sent, so that its socket does not stay full.
  void drain() {
    std::byte buffer[65536];
    while (::recv(peer_, buffer, sizeof buffer, MSG_DONTWAIT) > 0) {
    }
  }

  Input input_;
  std::byte* const memory_ = host_memory();
  memory::AddressSpace space_;
  memory::AddressSpace::Reader reader_;
  initiator::TcpStreamLimits limits_{
      .qid = 1, .entries = 9, .digests = {}, .max_h2c_bytes = 8192, .cpda = 0, .in_capsule_bytes = 0};
  std::unique_ptr<initiator::TcpStream> stream_;
  int peer_ = -1;
  bool mapped_ = true;
  bool reads_ = false;  // a read command was given the memory's first half
  unsigned busy_ = 0;  // bit per CID
  unsigned open_ = 0;
  std::uint32_t moved_[17] = {};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::prefer_small_pages();
  fuzz::keep_mappings();
  fuzz::keep_sockets_here();
  Attack(Input(data, size)).run();
  return 0;
}
