#include "initiator/vfio_user/vfio_user_device.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "driver/patience.h"
#include "vfio/pci_config.h"

namespace flashmob::initiator {
namespace {

constexpr std::size_t kMaxMessageBytes = std::size_t{2} << 20;
constexpr std::uint64_t kDoorbellOffset = 0x1000;
constexpr std::size_t kPageBytes = 4096;
// Doorbells of every queue that could exist: what the server does not map is memory of nobody.
constexpr std::size_t kDoorbellSpanBytes = driver::PciDevice::kAllDoorbellBytes;
constexpr std::string_view kCapabilities = R"({"capabilities":{"max_msg_fds":1,"max_data_xfer_size":1048576}})";
constexpr std::uint32_t kStopMark = 0x10000;  // beyond every vector

std::string socket_path(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return path + "/cntrl";
  return path;
}

}  // namespace

VfioUserDevice::VfioUserDevice(const std::string& path, int timeout_ms, const std::atomic<bool>* is_hurried)
    : VfioUserDevice(vfio::connect_unix(socket_path(path)), socket_path(path), timeout_ms, is_hurried) {}

VfioUserDevice::VfioUserDevice(vfio::UniqueFd socket, std::string name, int timeout_ms,
                               const std::atomic<bool>* is_hurried)
    : path_(std::move(name)), timeout_ms_(timeout_ms), is_hurried_(is_hurried) {
  socket_.emplace(std::move(socket), kMaxMessageBytes);
  negotiate();
  examine_device();
  enable_function();
  map_doorbells();
}

VfioUserDevice::~VfioUserDevice() {
  if (interrupts_.joinable()) {
    const std::uint64_t one = 1;
    FLASHMOB_CHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one));
    interrupts_.join();
  }
  doorbells_guard_.reset();
  if (doorbells_ != nullptr) munmap(doorbells_, kDoorbellSpanBytes);
}

void VfioUserDevice::fail(const std::string& why) const {
  throw ConfigError("vfio-user:" + path_ + ": " + why + "; name the socket of a vfio-user NVMe device that runs");
}

std::optional<vfio::Message> VfioUserDevice::exchange(vfio::Command command, std::span<const std::byte> payload,
                                                      std::span<const int> fds) {
  using Received = vfio::MessageSocket::Received;
  const std::lock_guard lock(socket_mutex_);
  if (lost_.load(std::memory_order_relaxed)) return std::nullopt;
  const std::uint16_t id = next_id_++;
  vfio::Header header{};
  header.message_id = id;
  header.command = static_cast<std::uint16_t>(command);
  header.flags = vfio::kTypeCommand;
  driver::Patience patience(std::chrono::milliseconds(timeout_ms_), is_hurried_);
  if (socket_->send(header, payload, fds, timeout_ms_)) {
    vfio::Message message;
    for (;;) {
      const Received received = socket_->receive(message);
      if (received == Received::message) {
        const bool reply = (message.header.flags & vfio::kFlagTypeMask) == vfio::kTypeReply;
        if (reply && message.header.message_id == id) return message;
        // A late answer to what timed out cannot come: after a time-out the connection counts as lost. And a server
        // that only asks is none that answers.
        const int left_ms = patience.left_ms();
        if (reply || left_ms == 0 || !refuse_command(message, left_ms)) break;
        continue;
      }
      const int left_ms = patience.next_ms();
      if (received != Received::nothing || left_ms == 0) break;
      (void)socket_->wait_readable(left_ms);
    }
  }
  lost_.store(true, std::memory_order_release);
  return std::nullopt;
}

// The server may ask the client for data in memory without a file; this client offers no such memory.
bool VfioUserDevice::refuse_command(const vfio::Message& message, int timeout_ms) {
  if ((message.header.flags & vfio::kFlagNoReply) != 0) return true;
  vfio::Header header = message.header;
  header.flags = vfio::kTypeReply | vfio::kFlagError;
  header.error = ENOTSUP;
  return socket_->send(header, {}, {}, timeout_ms);
}

void VfioUserDevice::negotiate() {
  std::vector<std::byte> offer(sizeof(vfio::Version) + kCapabilities.size() + 1);
  const vfio::Version version{vfio::kMajorVersion, vfio::kMinorVersion};
  std::memcpy(offer.data(), &version, sizeof(version));
  std::memcpy(offer.data() + sizeof(version), kCapabilities.data(), kCapabilities.size());
  const auto reply = exchange(vfio::Command::version, offer);
  vfio::Version theirs{};
  if (!reply) fail("the server does not answer");
  if ((reply->header.flags & vfio::kFlagError) != 0)
    fail(std::string("the server refuses (") + std::strerror(static_cast<int>(reply->header.error)) + ")");
  if (!reply->read(theirs) || theirs.major != vfio::kMajorVersion)
    fail("the server speaks another version of the protocol");
}

void VfioUserDevice::examine_device() {
  vfio::DeviceInfo info{.argsz = sizeof(vfio::DeviceInfo), .flags = 0, .regions = 0, .irqs = 0};
  auto reply = send_structure(vfio::Command::device_get_info, info);
  const bool answered = reply && (reply->header.flags & vfio::kFlagError) == 0 && reply->read(info);
  if (!answered || (info.flags & vfio::kDevicePci) == 0 || info.regions <= vfio::kRegionConfig)
    fail("what it serves is no PCI device");
  vfio::PciHeader header{};
  if (!read_region(vfio::kRegionConfig, 0, std::as_writable_bytes(std::span(&header, 1))))
    fail("its configuration space cannot be read");
  const auto& code = header.class_code;
  const std::uint32_t class_code = code[0] | (std::uint32_t{code[1]} << 8) | (std::uint32_t{code[2]} << 16);
  if (class_code != vfio::kNvmeClassCode) fail("what it serves is no NVMe controller");
  vfio::IrqInfo irq{.argsz = sizeof(vfio::IrqInfo), .flags = 0, .index = vfio::kIrqMsix, .count = 0};
  reply = send_structure(vfio::Command::device_get_irq_info, irq);
  if (reply && (reply->header.flags & vfio::kFlagError) == 0 && reply->read(irq))
    vectors_ = std::min(irq.count, vfio::kMsixMaxVectors);
}

// What a host's PCI code does before a driver's probe: registers answer, and the function may reach memory.
void VfioUserDevice::enable_function() {
  std::uint16_t command = 0;
  constexpr std::uint64_t kCommandOffset = offsetof(vfio::PciHeader, command);
  const bool read = read_region(vfio::kRegionConfig, kCommandOffset, std::as_writable_bytes(std::span(&command, 1)));
  command |= vfio::kCommandMemory | vfio::kCommandBusMaster;
  if (!read || !write_region(vfio::kRegionConfig, kCommandOffset, std::as_bytes(std::span(&command, 1))))
    fail("its command register cannot be written");
}

void VfioUserDevice::map_doorbells() {
  // Room for capabilities: the reply says how much it would have needed, and a dozen areas are more than there are.
  vfio::RegionInfo info{};
  info.argsz = 512;
  info.index = vfio::kRegionBar0;
  const auto reply = send_structure(vfio::Command::device_get_region_info, info);
  if (!reply || (reply->header.flags & vfio::kFlagError) != 0 || !reply->read(info)) fail("BAR0 cannot be examined");
  if ((info.flags & vfio::kRegionMappable) == 0 || reply->fds.empty()) fail("its doorbells cannot be mapped");

  // Without a list of areas all of the region can be mapped.
  vfio::SparseMmapArea found{0, info.size_bytes};
  std::uint32_t at = (info.flags & vfio::kRegionCapabilities) != 0 ? info.capability_offset : 0;
  for (int hops = 0; at != 0 && hops < 16; ++hops) {
    vfio::SparseMmap sparse{};
    if (!reply->read(sparse.header, at)) fail("its description of BAR0 is cut short");
    if (sparse.header.id == vfio::kCapabilitySparseMmap) {
      found = {};
      if (!reply->read(sparse, at)) fail("its description of BAR0 is cut short");
      for (std::uint32_t i = 0; i < sparse.areas; ++i) {
        vfio::SparseMmapArea area{};
        if (!reply->read(area, at + sizeof(sparse) + std::size_t{i} * sizeof(area))) break;
        if (area.offset <= kDoorbellOffset && area.size_bytes > kDoorbellOffset - area.offset) found = area;
      }
    }
    at = sparse.header.next;
  }
  if (found.size_bytes <= kDoorbellOffset - found.offset) fail("its doorbells cannot be mapped");

  // From the doorbells on, in whole pages that the file really has: touching others would be a SIGBUS.
  const std::uint64_t file_offset = info.offset + kDoorbellOffset;
  std::uint64_t bytes = found.offset + found.size_bytes - kDoorbellOffset;
  struct stat file{};
  const bool known = fstat(reply->fds[0].get(), &file) == 0 && info.offset < static_cast<std::uint64_t>(file.st_size);
  if (!known || static_cast<std::uint64_t>(file.st_size) <= file_offset) fail("its doorbells' file is too short");
  bytes = std::min(
      {bytes, static_cast<std::uint64_t>(file.st_size) - file_offset, static_cast<std::uint64_t>(kDoorbellSpanBytes)});
  void* const span =
      mmap(nullptr, kDoorbellSpanBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (span == MAP_FAILED) fail("there is no address space left for its doorbells");
  if (mmap(span, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, reply->fds[0].get(),
           static_cast<off_t>(file_offset)) == MAP_FAILED) {
    const int error = errno;
    munmap(span, kDoorbellSpanBytes);
    fail(std::string("its doorbells cannot be mapped (") + std::strerror(error) + ")");
  }
  doorbells_ = static_cast<std::uint32_t*>(span);
  doorbell_bytes_ = bytes;
  // The server may still cut its file short.
  doorbells_guard_.emplace(span, kDoorbellSpanBytes, kPageBytes);
}

bool VfioUserDevice::read_region(std::uint32_t region, std::uint64_t offset, std::span<std::byte> out) {
  const vfio::RegionAccess access{offset, region, static_cast<std::uint32_t>(out.size())};
  const auto reply = send_structure(vfio::Command::region_read, access);
  return reply && (reply->header.flags & vfio::kFlagError) == 0 &&
         reply->copy_out(out.data(), out.size(), sizeof(vfio::RegionAccess));
}

bool VfioUserDevice::write_region(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> data) {
  FLASHMOB_CHECK(data.size() <= 8);
  std::array<std::byte, sizeof(vfio::RegionAccess) + 8> request{};
  const vfio::RegionAccess access{offset, region, static_cast<std::uint32_t>(data.size())};
  std::memcpy(request.data(), &access, sizeof(access));
  std::memcpy(request.data() + sizeof(access), data.data(), data.size());
  const auto reply = exchange(vfio::Command::region_write, std::span(request).first(sizeof(access) + data.size()));
  return reply && (reply->header.flags & vfio::kFlagError) == 0;
}

std::uint32_t VfioUserDevice::read32(std::uint32_t offset) {
  std::uint32_t value = 0;
  return read_region(vfio::kRegionBar0, offset, std::as_writable_bytes(std::span(&value, 1))) ? value : ~value;
}

std::uint64_t VfioUserDevice::read64(std::uint32_t offset) {
  std::uint64_t value = 0;
  return read_region(vfio::kRegionBar0, offset, std::as_writable_bytes(std::span(&value, 1))) ? value : ~value;
}

void VfioUserDevice::write32(std::uint32_t offset, std::uint32_t value) {
  write_region(vfio::kRegionBar0, offset, std::as_bytes(std::span(&value, 1)));
}

void VfioUserDevice::write64(std::uint32_t offset, std::uint64_t value) {
  write_region(vfio::kRegionBar0, offset, std::as_bytes(std::span(&value, 1)));
}

void VfioUserDevice::dma_map(std::uint64_t, void*, std::size_t) {
  throw ConfigError("vfio-user:" + path_ + ": memory without a file cannot be shared; take it from a memfd");
}

void VfioUserDevice::dma_map_file(std::uint64_t iova, void* host, std::size_t bytes, int fd) {
  if (fd < 0) dma_map(iova, host, bytes);
  const vfio::DmaMap map{sizeof(vfio::DmaMap), vfio::kDmaReadable | vfio::kDmaWritable, 0, iova, bytes};
  const auto reply = send_structure(vfio::Command::dma_map, map, std::span(&fd, 1));
  if (!reply) fail("the server is gone");
  if ((reply->header.flags & vfio::kFlagError) != 0)
    throw ConfigError("vfio-user:" + path_ + ": the server cannot map " + std::to_string(bytes) + " bytes (" +
                      std::strerror(static_cast<int>(reply->header.error)) +
                      "); use fewer queues or raise the server's limit of open files");
}

void VfioUserDevice::dma_unmap(std::uint64_t iova, std::size_t bytes) {
  send_structure(vfio::Command::dma_unmap, vfio::DmaUnmap{sizeof(vfio::DmaUnmap), 0, iova, bytes});
}

bool VfioUserDevice::reset() {
  const auto reply = exchange(vfio::Command::device_reset, std::span<const std::byte>{});
  return reply && (reply->header.flags & vfio::kFlagError) == 0;
}

void VfioUserDevice::set_interrupt(std::uint16_t vector, std::function<void()> handler) {
  if (vector >= vectors_)
    throw ConfigError("interrupt vector " + std::to_string(vector) + ": the device at vfio-user:" + path_ + " has " +
                      std::to_string(vectors_));
  int event = -1;
  {
    const std::lock_guard lock(handlers_mutex_);
    if (!interrupts_.joinable()) {
      poller_ = vfio::UniqueFd(epoll_create1(EPOLL_CLOEXEC));
      stop_ = vfio::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      epoll_event watched{.events = EPOLLIN, .data = {.u32 = kStopMark}};
      if (!poller_ || !stop_ || epoll_ctl(poller_.get(), EPOLL_CTL_ADD, stop_.get(), &watched) != 0)
        throw ConfigError("no file descriptors are left for interrupts; raise the limit of open files (ulimit -n)");
      interrupts_ = std::thread([this] { interrupt_loop(); });
    }
    Vector& entry = handlers_[vector];
    entry.handler = std::move(handler);
    // A masked vector keeps its eventfd: the server goes on to signal it, and nobody is called.
    if (entry.event || !entry.handler) return;
    entry.event = vfio::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    epoll_event watched{.events = EPOLLIN, .data = {.u32 = vector}};
    if (!entry.event || epoll_ctl(poller_.get(), EPOLL_CTL_ADD, entry.event.get(), &watched) != 0)
      throw ConfigError("no file descriptors are left for interrupts; raise the limit of open files (ulimit -n)");
    event = entry.event.get();
  }
  const vfio::IrqSet set{sizeof(vfio::IrqSet), vfio::kIrqSetEventfd | vfio::kIrqSetTrigger, vfio::kIrqMsix, vector, 1};
  const auto reply = send_structure(vfio::Command::device_set_irqs, set, std::span(&event, 1));
  if (reply && (reply->header.flags & vfio::kFlagError) != 0)
    throw ConfigError("vfio-user:" + path_ + ": the server refuses interrupt vector " + std::to_string(vector));
}

void VfioUserDevice::interrupt_loop() {
  std::array<epoll_event, 64> events{};
  for (;;) {
    const int count = epoll_wait(poller_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const std::uint32_t mark = events[static_cast<std::size_t>(i)].data.u32;
      if (mark == kStopMark) return;
      const std::lock_guard lock(handlers_mutex_);
      Vector& entry = handlers_.at(static_cast<std::uint16_t>(mark));
      std::uint64_t signals = 0;
      if (read(entry.event.get(), &signals, sizeof(signals)) != sizeof(signals)) continue;
      // A copy, so that a handler that replaces itself does not free the function it is running.
      const auto handler = entry.handler;
      if (handler) handler();
    }
  }
}

}  // namespace flashmob::initiator
