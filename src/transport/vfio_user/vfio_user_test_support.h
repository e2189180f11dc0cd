// For tests of the vfio-user door: a device behind a socket, and a host that speaks the protocol by hand, down to
// queues in shared memory. The host is written from the specification alone and shares no code with the driver. One
// thread each.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "controller/subsystem.h"
#include "engine/engine.h"
#include "memory/host_memory.h"
#include "nvme/admin_command.h"
#include "nvme/command.h"
#include "nvme/opcode.h"
#include "nvme/registers.h"
#include "transport/vfio_user/vfio_user_server.h"
#include "vfio/message_socket.h"
#include "vfio/protocol.h"

namespace flashmob::transport {

inline DeviceConfig test_device_config() {
  DeviceConfig config;
  config.subsystem.namespaces[0].size_bytes = 4 << 20;
  config.controller.max_queue_pairs = 8;
  config.controller.interrupt_vectors = 9;
  config.timing.model = "none";
  config.engine.idle_spin_ns = 50'000;
  return config;
}

// A device with one door.
struct TestDevice {
  explicit TestDevice(const DeviceConfig& device_config = test_device_config(), VfioUserOptions options = {})
      : config(device_config),
        clock(Clock::real()),
        subsystem(config.subsystem, config.seed, config.timing.unit_bytes),
        engine(config, clock),
        path(next_path()) {
    engine.start();
    server.emplace(subsystem, engine, config.controller, path, std::move(options));
  }
  ~TestDevice() {
    server.reset();
    engine.stop();
  }
  static std::string next_path() {
    static std::atomic<int> count{0};
    return testing::TempDir() + "fm-vu-" + std::to_string(getpid()) + "-" + std::to_string(count.fetch_add(1));
  }
  std::size_t controllers() {
    const std::lock_guard lock(subsystem.mutex());
    return subsystem.controllers().size();
  }
  // Waits until the server has torn down what clients left behind.
  bool wait_for_controllers(std::size_t wanted) {
    for (int i = 0; i < 60'000 && controllers() != wanted; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return controllers() == wanted;
  }

  DeviceConfig config;
  Clock clock;
  controller::Subsystem subsystem;
  engine::Engine engine;
  std::string path;
  std::optional<VfioUserServer> server;
};

template <class T>
std::vector<std::byte> to_bytes(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

struct TestQueue {
  nvme::Sqe* sq = nullptr;
  nvme::Cqe* cq = nullptr;
  std::uint64_t sq_iova = 0, cq_iova = 0;
  std::uint32_t entries = 0, tail = 0, head = 0, phase = 1;
  std::uint16_t qid = 0;
};

class TestHost {
 public:
  static constexpr std::size_t kMemoryBytes = 4 << 20;

  explicit TestHost(const std::string& path)
      : socket_(vfio::connect_unix(path), 2 << 20), memory_(kMemoryBytes, memory::HostMemory::Kind::shared_memfd) {}
  ~TestHost() {
    if (doorbells_ != nullptr) munmap(doorbells_, doorbell_bytes_);
  }
  TestHost(const TestHost&) = delete;
  TestHost& operator=(const TestHost&) = delete;

  vfio::MessageSocket& socket() { return socket_; }
  std::byte* memory() { return memory_.data(); }
  int memory_fd() const { return memory_.fd(); }

  // --- Messages ---
  void post(vfio::Command command, std::span<const std::byte> payload, std::span<const int> fds = {},
            std::uint32_t flags = 0) {
    ASSERT_TRUE(socket_.send({next_id_++, static_cast<std::uint16_t>(command), 0, flags, 0}, payload, fds));
  }
  // The next reply; its error is UINT32_MAX when there was none.
  vfio::Message reply() {
    vfio::Message message;
    for (;;) {
      const auto got = socket_.receive(message);
      if (got == vfio::MessageSocket::Received::message) {
        if ((message.header.flags & vfio::kFlagTypeMask) == vfio::kTypeReply) return message;
        answer_server(message);
        continue;
      }
      if (got != vfio::MessageSocket::Received::nothing || !socket_.wait_readable(20'000)) break;
    }
    message.header.error = UINT32_MAX;
    return message;
  }
  bool is_disconnected() { return reply().header.error == UINT32_MAX; }
  vfio::Message ask(vfio::Command command, std::span<const std::byte> payload = {}, std::span<const int> fds = {}) {
    const std::uint16_t id = next_id_;
    post(command, payload, fds);
    vfio::Message message = reply();
    if (message.header.error == UINT32_MAX) return message;
    EXPECT_EQ(message.header.message_id, id);
    EXPECT_EQ(message.header.command, static_cast<std::uint16_t>(command));
    EXPECT_EQ(message.header.flags & vfio::kFlagTypeMask, vfio::kTypeReply);
    EXPECT_EQ((message.header.flags & vfio::kFlagError) != 0, message.header.error != 0);
    EXPECT_TRUE(message.header.error == 0 || message.payload.empty()) << "errors are headers only";
    return message;
  }
  // The errno of the reply.
  template <class T>
  std::uint32_t error_of(vfio::Command command, const T& payload, std::span<const int> fds = {}) {
    return ask(command, to_bytes(payload), fds).header.error;
  }

  vfio::Message negotiate(std::string text = R"({"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576}})",
                          vfio::Version version = {0, 1}) {
    auto payload = to_bytes(version);
    const auto bytes = std::as_bytes(std::span(text.c_str(), text.size() + 1));
    if (!text.empty()) payload.insert(payload.end(), bytes.begin(), bytes.end());
    return ask(vfio::Command::version, payload);
  }

  std::uint32_t map_dma(std::uint64_t iova, std::uint64_t bytes, int fd, std::uint64_t offset = 0,
                        std::uint32_t flags = vfio::kDmaReadable | vfio::kDmaWritable) {
    const vfio::DmaMap map{sizeof(map), flags, offset, iova, bytes};
    return error_of(vfio::Command::dma_map, map, fd < 0 ? std::span<const int>() : std::span<const int>(&fd, 1));
  }
  std::uint32_t unmap_dma(std::uint64_t iova, std::uint64_t bytes, std::uint32_t flags = 0) {
    return error_of(vfio::Command::dma_unmap, vfio::DmaUnmap{sizeof(vfio::DmaUnmap), flags, iova, bytes});
  }

  template <class T>
  T read(std::uint32_t region, std::uint64_t offset) {
    const auto message = ask(vfio::Command::region_read, to_bytes(vfio::RegionAccess{offset, region, sizeof(T)}));
    T value{};
    EXPECT_EQ(message.header.error, 0u);
    EXPECT_TRUE(message.read(value, sizeof(vfio::RegionAccess)));
    return value;
  }
  template <class T>
  std::uint32_t write(std::uint32_t region, std::uint64_t offset, const T& value) {
    auto payload = to_bytes(vfio::RegionAccess{offset, region, sizeof(T)});
    const auto data = to_bytes(value);
    payload.insert(payload.end(), data.begin(), data.end());
    return ask(vfio::Command::region_write, payload).header.error;
  }
  std::uint32_t reg(std::uint64_t offset) { return read<std::uint32_t>(vfio::kRegionBar0, offset); }

  std::uint32_t set_irqs(std::uint32_t index, std::uint32_t flags, std::uint32_t start, std::uint32_t count,
                         std::span<const int> fds = {}, std::span<const std::byte> data = {}) {
    auto payload = to_bytes(
        vfio::IrqSet{static_cast<std::uint32_t>(sizeof(vfio::IrqSet) + data.size()), flags, index, start, count});
    payload.insert(payload.end(), data.begin(), data.end());
    return ask(vfio::Command::device_set_irqs, payload, fds).header.error;
  }

  // --- Memory by messages ---
  // As attach(), with memory that the server must ask for and doorbells that are written by messages.
  void attach_unshared() {
    ASSERT_EQ(negotiate().header.error, 0u);
    ASSERT_EQ(map_dma(0, kMemoryBytes, -1), 0u);
  }
  // Answers DMA_READ and DMA_WRITE from the memory, unless `twist` changes or, by `false`, swallows the answer.
  void answer_server(const vfio::Message& message) {
    const auto command = static_cast<vfio::Command>(message.header.command);
    vfio::DmaAccess access{};
    ASSERT_TRUE(message.read(access));
    ++(command == vfio::Command::dma_read ? dma_reads : dma_writes);
    ASSERT_TRUE(access.address <= kMemoryBytes && access.count_bytes <= kMemoryBytes - access.address);
    vfio::Header header{message.header.message_id, message.header.command, 0, vfio::kTypeReply, 0};
    auto payload = to_bytes(access);
    std::byte* const at = memory_.data() + access.address;
    if (twist && !twist(command, access, header, payload)) return;
    if (header.error == 0 && command == vfio::Command::dma_read) {
      payload.insert(payload.end(), at, at + access.count_bytes);
    } else if (header.error == 0) {
      ASSERT_TRUE(message.copy_out(at, access.count_bytes, sizeof(access)));
    }
    ASSERT_TRUE(socket_.send(header, payload));
  }
  // Answers what the server asks now.
  void answer_all() {
    vfio::Message message;
    while (socket_.receive(message) == vfio::MessageSocket::Received::message) answer_server(message);
  }
  std::function<bool(vfio::Command, const vfio::DmaAccess&, vfio::Header&, std::vector<std::byte>&)> twist;
  unsigned dma_reads = 0;
  unsigned dma_writes = 0;

  // --- NVMe ---
  // Negotiates, shares the memory at I/O address 0 and maps the doorbells.
  void attach() {
    ASSERT_EQ(negotiate().header.error, 0u);
    ASSERT_EQ(map_dma(0, kMemoryBytes, memory_.fd()), 0u);
    map_doorbells();
  }
  void map_doorbells() {
    vfio::RegionInfo info{256, 0, vfio::kRegionBar0, 0, 0, 0};
    const auto message = ask(vfio::Command::device_get_region_info, to_bytes(info));
    vfio::SparseMmapArea area{};
    ASSERT_TRUE(message.read(info) && message.read(area, info.capability_offset + sizeof(vfio::SparseMmap)));
    ASSERT_EQ(message.fds.size(), 1u);
    doorbell_bytes_ = area.size_bytes;
    void* mapped = mmap(nullptr, area.size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, message.fds[0].get(),
                        static_cast<off_t>(info.offset + area.offset));
    ASSERT_NE(mapped, MAP_FAILED);
    doorbells_ = static_cast<std::uint32_t*>(mapped);
  }
  bool wait_for_csts(std::uint32_t mask, std::uint32_t value) {
    for (int i = 0; i < 60'000; ++i) {
      if ((reg(nvme::kRegCsts) & mask) == value) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  // Enables the controller with admin queues at the start of the memory; true once it is ready, or has `status`.
  bool enable(std::uint32_t status = 1) {
    admin_ = queue_at(0, 0, 32);
    write<std::uint32_t>(vfio::kRegionBar0, nvme::kRegAqa, nvme::encode_aqa({31, 31}));
    write<std::uint64_t>(vfio::kRegionBar0, nvme::kRegAsq, admin_.sq_iova);
    write<std::uint64_t>(vfio::kRegionBar0, nvme::kRegAcq, admin_.cq_iova);
    write<std::uint32_t>(vfio::kRegionBar0, nvme::kRegCc, nvme::encode_cc({.en = true, .iosqes = 6, .iocqes = 4}));
    return wait_for_csts(status, status);
  }
  // A queue pair in the memory's page pair `2 * place`; both rings are zeroed.
  TestQueue queue_at(std::uint16_t qid, std::size_t place, std::uint32_t entries) {
    TestQueue queue;
    queue.qid = qid;
    queue.entries = entries;
    queue.sq_iova = place * 8192;
    queue.cq_iova = place * 8192 + 4096;
    queue.sq = reinterpret_cast<nvme::Sqe*>(memory_.data() + queue.sq_iova);
    queue.cq = reinterpret_cast<nvme::Cqe*>(memory_.data() + queue.cq_iova);
    std::memset(memory_.data() + queue.sq_iova, 0, 8192);
    return queue;
  }
  void ring(unsigned doorbell, std::uint32_t value) {
    if (doorbells_ == nullptr)
      write<std::uint32_t>(vfio::kRegionBar0, 0x1000 + 4 * doorbell, value);
    else
      std::atomic_ref<std::uint32_t>(doorbells_[doorbell]).store(value, std::memory_order_release);
  }
  void submit(TestQueue& queue, const nvme::Sqe& sqe) {
    queue.sq[queue.tail] = sqe;
    queue.tail = (queue.tail + 1) % queue.entries;
    ring(2 * queue.qid, queue.tail);
  }
  // Waits until the completion `ahead` of the next one has been posted; it is not taken.
  static bool wait_for_entry(const TestQueue& queue, std::uint32_t ahead, int limit_ms = 60'000) {
    const std::uint32_t index = (queue.head + ahead) % queue.entries;
    const std::uint32_t phase = queue.head + ahead < queue.entries ? queue.phase : queue.phase ^ 1;
    for (int i = 0; i < limit_ms; ++i) {
      std::atomic_ref<std::uint16_t> status(queue.cq[index].status_phase);
      if ((status.load(std::memory_order_acquire) & 1) == phase) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  // The next completion's status, or 0xFFFF after a minute: beside a build a disk takes its time.
  std::uint16_t complete(TestQueue& queue) {
    nvme::Cqe& cqe = queue.cq[queue.head];
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while ((std::atomic_ref<std::uint16_t>(cqe.status_phase).load(std::memory_order_acquire) & 1) != queue.phase) {
      if (std::chrono::steady_clock::now() > deadline) return 0xFFFF;
      if (doorbells_ == nullptr) answer_all();
      std::this_thread::yield();
    }
    const auto status = static_cast<std::uint16_t>(cqe.status_phase >> 1);
    if (++queue.head == queue.entries) {
      queue.head = 0;
      queue.phase ^= 1;
    }
    ring(2 * queue.qid + 1, queue.head);
    return status;
  }
  std::uint16_t admin(const nvme::Sqe& sqe) {
    submit(admin_, sqe);
    return complete(admin_);
  }
  // Admin commands rung at once; complete_admin() then takes their completions.
  void submit_together(std::initializer_list<nvme::Sqe> sqes) {
    for (const nvme::Sqe& sqe : sqes) {
      admin_.sq[admin_.tail] = sqe;
      admin_.tail = (admin_.tail + 1) % admin_.entries;
    }
    ring(0, admin_.tail);
  }
  std::uint16_t complete_admin() { return complete(admin_); }
  // Creates I/O queue pair `qid` behind the admin queues in the memory. `vector` < 0: without interrupts.
  TestQueue create_queue(std::uint16_t qid, std::uint32_t entries = 16, int vector = -1) {
    TestQueue queue = queue_at(qid, qid, entries);
    const auto last = static_cast<std::uint16_t>(entries - 1);
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::create_io_cq);
    sqe.prp1 = queue.cq_iova;
    nvme::encode_create_io_cq({qid, last, true, vector >= 0, static_cast<std::uint16_t>(std::max(vector, 0))}, sqe);
    EXPECT_EQ(admin(sqe), 0u);
    sqe = {};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::create_io_sq);
    sqe.prp1 = queue.sq_iova;
    nvme::encode_create_io_sq({.qid = qid, .qsize = last, .cqid = qid}, sqe);
    EXPECT_EQ(admin(sqe), 0u);
    return queue;
  }
  static nvme::Sqe io(nvme::NvmOpcode opcode, std::uint64_t lba, std::uint64_t iova, std::uint16_t blocks = 1,
                      std::uint16_t cid = 1) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.cid = cid;
    sqe.nsid = 1;
    sqe.prp1 = iova;
    sqe.cdw10 = static_cast<std::uint32_t>(lba);
    sqe.cdw12 = blocks - 1u;
    return sqe;
  }
  std::uint16_t run(TestQueue& queue, const nvme::Sqe& sqe) {
    submit(queue, sqe);
    return complete(queue);
  }
  // Enabled, with one I/O queue pair.
  TestQueue start(int vector = -1) {
    attach();
    EXPECT_TRUE(enable());
    return create_queue(1, 16, vector);
  }
  std::uint32_t* doorbells() { return doorbells_; }

 private:
  vfio::MessageSocket socket_;
  memory::HostMemory memory_;
  std::uint16_t next_id_ = 1;
  std::uint32_t* doorbells_ = nullptr;
  std::size_t doorbell_bytes_ = 0;
  TestQueue admin_;
};

// A non-blocking eventfd of the test.
struct TestEvent {
  TestEvent() : fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  // Its count, which becomes 0.
  std::uint64_t take() {
    eventfd_t value = 0;
    return eventfd_read(fd.get(), &value) == 0 ? value : 0;
  }
  // Waits for the next signal, up to five seconds.
  bool wait() {
    for (int i = 0; i < 60'000; ++i) {
      if (take() != 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  vfio::UniqueFd fd;
};

}  // namespace flashmob::transport
