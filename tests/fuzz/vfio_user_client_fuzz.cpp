// libFuzzer target: a hostile vfio-user server at our own client. The server's side of the conversation is written
// before the client begins: for each request an answer that is right, almost right, an error, cut, too long or for
// somebody else, with descriptors of files that fit, are short, are no files or are too many; in between its own
// commands (DMA reads and writes, and what no server may send) and bytes as they come. Then the connection ends, so the
// client never waits. Whatever comes, the client ends with ConfigError or has a device that works or is gone, touches
// no memory that is not there, and leaves no descriptor behind.
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "driver/dma_memory.h"
#include "flashmob/error.h"
#include "fuzz/input.h"
#include "initiator/vfio_user/vfio_user_device.h"
#include "vfio/message_socket.h"
#include "vfio/pci_config.h"
#include "vfio/protocol.h"

namespace {

using namespace flashmob;
using fuzz::Input;
using vfio::Command;

constexpr std::size_t kFileBytes = 0x4000;

class Server {
 public:
  Server(Input& input, vfio::UniqueFd socket)
      : input_(input),
        socket_(std::move(socket), 1 << 20),
        file_(memfd_create("bar", MFD_CLOEXEC)),
        event_(eventfd(0, EFD_CLOEXEC)) {
    FLASHMOB_CHECK(ftruncate(file_.get(), kFileBytes) == 0);
  }

  // Answers the next request, which is `command`.
  void answer(Command command) {
    const std::uint8_t shape = input_.byte();
    for (int i = shape & 3; i > 0; --i) ask();
    const std::uint16_t id = ++next_id_;
    std::vector<std::byte> payload = usual(command);
    std::vector<int> fds;
    if (command == Command::device_get_region_info) fds.push_back(file_.get());
    vfio::Header header{id, static_cast<std::uint16_t>(command), 0, vfio::kTypeReply, 0};
    switch (shape >> 4) {
      case 10:  // some bytes are others
        for (int i = input_.byte() % 4; i >= 0 && !payload.empty(); --i)
          payload[input_.byte() % payload.size()] = static_cast<std::byte>(input_.byte());
        break;
      case 11:
        payload.resize(input_.byte() % (payload.size() + 1));
        break;
      case 12:
        payload.resize(payload.size() + input_.byte() * 16u, std::byte{input_.byte()});
        break;
      case 13:
        header.flags |= input_.byte() & 0x70;
        header.error = input_.take<std::uint32_t>();
        break;
      case 14:
        descriptors(fds);
        break;
      case 15:
        header.message_id = static_cast<std::uint16_t>(header.message_id + input_.byte() % 3 - 1);
        header.flags = input_.byte() & 0x3F;
        break;
      default:
        break;
    }
    send(header, payload, fds);
  }

  // For what is not answered: bytes of any kind.
  void noise() {
    std::vector<std::uint8_t> bytes(input_.byte() % 64);
    for (std::uint8_t& byte : bytes) byte = input_.byte();
    (void)!::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void cut_file(std::uint8_t pages) { FLASHMOB_CHECK(ftruncate(file_.get(), pages % 4 * 4096) == 0); }
  void hang_up() { shutdown(socket_.fd(), SHUT_WR); }

 private:
  template <class T>
  static void append(std::vector<std::byte>& to, const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
  }

  std::vector<std::byte> usual(Command command) {
    std::vector<std::byte> payload;
    switch (command) {
      case Command::version:
        append(payload, vfio::Version{0, 1});
        break;
      case Command::device_get_info:
        append(payload, vfio::DeviceInfo{sizeof(vfio::DeviceInfo), vfio::kDevicePci, 9, 5});
        break;
      case Command::device_get_irq_info:
        append(payload, vfio::IrqInfo{sizeof(vfio::IrqInfo), vfio::kIrqEventfd, vfio::kIrqMsix, 4});
        break;
      case Command::device_get_region_info: {
        constexpr std::uint32_t kFlags =
            vfio::kRegionReadable | vfio::kRegionWritable | vfio::kRegionMappable | vfio::kRegionCapabilities;
        append(payload, vfio::RegionInfo{512, kFlags, 0, sizeof(vfio::RegionInfo), kFileBytes, 0});
        append(payload, vfio::SparseMmap{{vfio::kCapabilitySparseMmap, 1, 0}, 1, 0});
        append(payload, vfio::SparseMmapArea{0x1000, 0x1000});
        break;
      }
      case Command::region_read: {
        vfio::PciHeader header{};
        header.class_code = {0x02, 0x08, 0x01};
        append(payload, vfio::RegionAccess{0, vfio::kRegionConfig, sizeof(header)});
        append(payload, header);
        break;
      }
      default:
        append(payload, vfio::RegionAccess{});
        break;
    }
    return payload;
  }

  void ask() {
    constexpr std::array kCommands{Command::dma_read, Command::dma_write, Command::device_reset, Command::dma_map};
    const std::uint8_t shape = input_.byte();
    std::vector<std::byte> payload;
    append(payload, vfio::DmaAccess{input_.take<std::uint64_t>(), input_.byte()});
    payload.resize((shape & 0x40) != 0 ? input_.byte() : payload.size());
    std::vector<int> fds;
    if ((shape & 0x20) != 0) descriptors(fds);
    send({static_cast<std::uint16_t>(input_.byte()), static_cast<std::uint16_t>(kCommands[shape & 3]), 0, shape & 0x10u,
          0},
         payload, fds);
  }

  void descriptors(std::vector<int>& fds) {
    fds.clear();
    for (int i = input_.byte() % 20; i > 0; --i) {
      const std::uint8_t kind = input_.byte();
      fds.push_back(kind < 128 ? file_.get() : kind < 200 ? event_.get() : socket_.fd());
    }
  }

  void send(const vfio::Header& header, std::span<const std::byte> payload, std::span<const int> fds) {
    if (!full_) full_ = socket_.start_send(header, payload, fds) != vfio::MessageSocket::Sent::whole;
  }

  Input& input_;
  vfio::MessageSocket socket_;
  vfio::UniqueFd file_;
  vfio::UniqueFd event_;
  std::uint16_t next_id_ = 0;
  bool full_ = false;
};

// Uses the device as a driver would, whatever its server has said.
void use(initiator::VfioUserDevice& device, std::span<const std::uint8_t> calls, Server& server, std::uint8_t pages) {
  device.doorbells()[0] = 1;
  server.cut_file(pages);
  device.doorbells()[1] = 2;
  device.doorbells()[2 * 65535 + 1] = 3;
  std::unique_ptr<driver::DmaMemory> memory;
  for (const std::uint8_t call : calls) {
    try {
      switch (call % 8) {
        case 0:
          (void)device.read32(call);
          break;
        case 1:
          (void)device.read64(call);
          break;
        case 2:
          device.write32(call, call);
          break;
        case 3:
          memory.reset();
          memory = std::make_unique<driver::DmaMemory>(device, 4096);
          break;
        case 4:
          memory.reset();
          break;
        case 5:
          (void)device.reset();
          break;
        default:
          if (call / 8 < device.interrupt_vectors()) device.set_interrupt(call / 8, [] {});
          break;
      }
    } catch (const ConfigError&) {
    }
  }
}

int next_descriptor() {
  const vfio::UniqueFd probe(eventfd(0, EFD_CLOEXEC));
  return probe.get();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int before = next_descriptor();
  {
    Input input(data, size);
    int ends[2];
    FLASHMOB_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    vfio::UniqueFd client(ends[0]);
    Server server(input, vfio::UniqueFd(ends[1]));
    const std::uint8_t pages = input.byte();
    for (const Command command :
         {Command::version, Command::device_get_info, Command::region_read, Command::device_get_irq_info,
          Command::region_read, Command::region_write, Command::device_get_region_info})
      server.answer(command);
    std::array<std::uint8_t, 8> calls{};
    for (std::uint8_t& call : calls) {
      call = input.byte();
      constexpr std::array kCommands{Command::region_read, Command::region_read, Command::region_write,
                                     Command::dma_map,     Command::dma_unmap,   Command::device_reset};
      if (!input.empty()) server.answer(call % 8 < kCommands.size() ? kCommands[call % 8] : Command::device_set_irqs);
    }
    if (!input.empty()) server.noise();
    server.hang_up();
    try {
      initiator::VfioUserDevice device(std::move(client), "fuzz", 1000);
      use(device, calls, server, pages);
    } catch (const ConfigError&) {
    }
  }
  FLASHMOB_CHECK(next_descriptor() == before);
  return 0;
}
