// libFuzzer target: a hostile client of the vfio-user door whose memory only messages reach, with the session's own
// thread for it as a fibre, and an engine in virtual time. (Queues in shared memory: vfio_user_fuzz.)
//
// Input: a list of steps. Most are messages of the right shape whose fields are drawn from the input, some are bytes as
// they come; others ring doorbells, scribble over the shared memory or cut its file short, or say who goes on: the
// engine, the thread, the client that it asks. Whatever comes, the session must answer every command that wants an
// answer exactly once, give valid replies, end only where it says why, and leave nothing behind.
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "controller/subsystem.h"
#include "engine/engine.h"
#include "fuzz/fibre_threads.h"
#include "fuzz/input.h"
#include "fuzz/kept_files.h"
#include "fuzz/kept_mappings.h"
#include "fuzz/socket_pairs.h"
#include "fuzz/vfio_user_shapes.h"
#include "transport/vfio_user/session.h"
#include "vfio/bus_error_guard.h"
#include "vfio/message_socket.h"
#include "vfio/peer_event.h"
#include "vfio/protocol.h"

namespace {

using namespace flashmob;
using namespace flashmob::fuzz;
using vfio::Command;

constexpr std::size_t kFileBytes = 256 << 10;

// The device and the client's file live as long as the process; each input is one client.
struct Device {
  Device()
      : config(make_config()),
        clock(Clock::virtual_from(1'000'000)),
        subsystem(config.subsystem, 1, 512),
        engine(config, clock),
        file(memfd_create("fuzz", MFD_CLOEXEC)) {
    FLASHMOB_CHECK(file && ftruncate(file.get(), kFileBytes) == 0);
    vfio::prepare_events();
    keep_mappings(&vfio::BusErrorGuard::hits);
    keep_files();
    keep_mappings_of(file.get());
    keep_sockets_here();
    keep_threads_here();
    void* const memory = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    FLASHMOB_CHECK(memory != MAP_FAILED);
    shared = static_cast<std::byte*>(memory);
  }
  static DeviceConfig make_config() {
    DeviceConfig config;
    config.subsystem.namespaces[0].size_bytes = 1 << 20;
    config.controller.max_queue_pairs = 4;
    config.controller.interrupt_vectors = 5;
    config.timing.model = "none";
    return config;
  }
  // One round of the engine, for which some time passes.
  bool poll() {
    clock.advance_to(clock.now_ns() + 1'000);
    bool worked = false;
    for (unsigned actor = 0; actor < engine.actors(); ++actor) worked |= engine.poll_actor(actor);
    return worked;
  }
  // To the time when something is due, if anything is.
  void pass_to_next() {
    std::uint64_t next_ns = UINT64_MAX;
    for (unsigned actor = 0; actor < engine.actors(); ++actor)
      next_ns = std::min(next_ns, engine.actor_deadline_ns(actor));
    if (next_ns != UINT64_MAX) clock.advance_to(std::max(clock.now_ns(), next_ns));
  }
  // The file is empty and whole, for the next input.
  void clear_file() {
    if (std::exchange(whole, true)) {
      std::memset(shared, 0, kFileBytes);
    } else {
      FLASHMOB_CHECK(ftruncate(file.get(), 0) == 0 && ftruncate(file.get(), kFileBytes) == 0);
    }
  }
  void cut_file(std::size_t bytes) {
    FLASHMOB_CHECK(ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
    whole = whole && bytes == kFileBytes;
  }

  DeviceConfig config;
  Clock clock;
  controller::Subsystem subsystem;
  engine::Engine engine;
  vfio::UniqueFd file;
  std::byte* shared = nullptr;
  bool whole = true;  // since it was cleared
};

class Client {
 public:
  // With `lazy`, engine and thread go on only where the input says so, or somebody waits for them.
  Client(Device& device, bool lazy)
      : device_(device), file_(device.file), event_(eventfd(0, EFD_CLOEXEC)), lazy_(lazy) {
    int pair[2];
    device.clear_file();
    FLASHMOB_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    socket_ = std::make_unique<vfio::MessageSocket>(vfio::UniqueFd(pair[0]), 4 << 20);
    session_ = std::make_unique<transport::Session>(device.subsystem, device.engine, device.config.controller,
                                                    vfio::UniqueFd(pair[1]));
  }

  bool alive() const { return alive_; }

  void step(Input& in) {
    act(in);
    if (!lazy_) settle();
  }

  // Until nobody has anything to do. The thread looks for completions by itself, too: it is given the time once.
  void settle() {
    for (int rounds = 0, idle = 0; alive_ && idle < 2; ++rounds) {
      FLASHMOB_CHECK(rounds < kMostRounds);
      bool worked = device_.poll();
      worked |= run_threads(idle == 1);
      serve();
      idle = worked && idle == 0 ? 0 : idle + 1;
    }
  }

  void act(Input& in) {
    switch (in.byte() % 22) {
      case 0:
        return raw(in);
      case 1:
        if (doorbells_ != nullptr) doorbells_[in.byte() % 16] = number32(in);
        return;
      case 2: {
        std::array<std::uint8_t, 64> scribble;
        for (std::uint8_t& one : scribble) one = in.byte();
        (void)!pwrite(file_.get(), scribble.data(), scribble.size(), (in.byte() % 64) * 64);
        return;
      }
      case 3:
        return device_.cut_file(in.byte() % 2 == 0 ? 0 : kFileBytes);
      case 4:
        session_->on_event();
        return;
      case 5:
        return enable();
      case 6:
        mood_ = in.byte();
        return;
      case 7:
        return go_on(in.byte());
      default:
        return message(in);
    }
  }

  void negotiate() {
    const char text[] = R"({"capabilities":{"max_msg_fds":8}})";
    std::vector<std::byte> payload;
    append(payload, vfio::Version{0, 1});
    append(payload, text);
    send(Command::version, payload, {}, 0);
  }
  void map_all() {
    std::vector<std::byte> payload;
    append(payload, vfio::DmaMap{sizeof(vfio::DmaMap), 3, 0, 0, kFileBytes});
    const int fd = file_.get();
    send(Command::dma_map, payload, {&fd, 1}, 0);
    payload.clear();
    append(payload, vfio::RegionInfo{256, 0, 0, 0, 0, 0});
    send(Command::device_get_region_info, payload, {}, 0);
  }

  // The same without a descriptor: queues there are served by messages, and doorbells are written so.
  void map_unshared() {
    std::vector<std::byte> payload;
    append(payload, vfio::DmaMap{sizeof(vfio::DmaMap), 3, 0, 0, kFileBytes});
    send(Command::dma_map, payload, {}, 0);
  }

  ~Client() {
    session_.reset();
    if (doorbells_ != nullptr) munmap(doorbells_, 4096);
  }

 private:
  void raw(Input& in) {
    std::vector<std::uint8_t> bytes(in.byte() % 32);
    for (std::uint8_t& one : bytes) one = in.byte();
    (void)!::send(socket_->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    exact_ = false;  // from here on the stream's messages are anybody's guess
    serve();
  }

  // Lets some of them go on that take part, in an order of the input's choice.
  void go_on(std::uint8_t who) {
    if ((who & 64) != 0) device_.pass_to_next();
    if ((who & 1) != 0) (void)device_.poll();
    if ((who & 2) != 0) (void)run_threads((who & 4) != 0);
    if ((who & 8) == 0) {
      session_->on_event();
      serve();
    }
    if ((who & 16) != 0) (void)run_threads(false);
    if ((who & 32) != 0) (void)device_.poll();
  }

  void write_register(std::uint64_t offset, std::uint64_t value, std::uint32_t bytes) {
    std::vector<std::byte> payload;
    append(payload, vfio::RegionAccess{offset, vfio::kRegionBar0, bytes});
    append(payload, value);
    payload.resize(sizeof(vfio::RegionAccess) + bytes);
    send(Command::region_write, payload, {}, 0);
  }
  void enable() {
    write_register(0x24, 0x00030003, 4);
    write_register(0x28, 0x0000, 8);
    write_register(0x30, 0x1000, 8);
    write_register(0x14, 0x00460001, 4);
  }

  void message(Input& in) {
    const Shaped shaped = shape_message(in);
    std::array<int, 4> fds;
    for (std::size_t i = 0; i < shaped.file_count; ++i) fds[i] = descriptor(shaped.files[i]);
    send(shaped.command, shaped.payload, std::span(fds).first(shaped.file_count), shaped.flags);
  }
  int descriptor(SentFile file) const {
    switch (file) {
      case SentFile::memory:
        return file_.get();
      case SentFile::event:
        return event_.get();
      default:
        return socket_->fd();
    }
  }

  void send(Command command, std::span<const std::byte> payload, std::span<const int> fds, std::uint32_t flags) {
    if (!alive_) return;
    const std::uint16_t id = ++next_id_;
    if (socket_->start_send({id, static_cast<std::uint16_t>(command), 0, flags, 0}, payload, fds) !=
        vfio::MessageSocket::Sent::whole) {
      alive_ = false;
      return;
    }
    serve();
    // The engine has a part in a reset, and no message says when it has done it.
    for (int rounds = 0; alive_ && session_->is_resetting(); ++rounds) {
      FLASHMOB_CHECK(rounds < kMostRounds);
      (void)device_.poll();
      serve();
    }
    if (alive_ && exact_) FLASHMOB_CHECK(last_reply_ == id || (flags & vfio::kFlagNoReply) != 0);
  }

  void serve() {
    bool going = session_->serve(1000);
    vfio::Message message;
    while (socket_->receive(message) == vfio::MessageSocket::Received::message) {
      const bool asked = (message.header.flags & vfio::kFlagTypeMask) == vfio::kTypeCommand;
      if (asked)
        answer(message);
      else
        check(message);
      if (going && (asked || session_->wants_to_write())) going = session_->serve(1000);
    }
    if (going) return;
    FLASHMOB_CHECK(!session_->why().empty());
    alive_ = false;
  }

  // The server asks for memory that it has no file of: it gets it, or an error, or nonsense, or nothing.
  void answer(const vfio::Message& message) {
    const auto command = static_cast<Command>(message.header.command);
    vfio::DmaAccess access{};
    FLASHMOB_CHECK(command == Command::dma_read || command == Command::dma_write);
    FLASHMOB_CHECK(message.fds.empty() && message.read(access) && access.count_bytes - 1 < 1 << 20);
    FLASHMOB_CHECK(message.payload.size() == sizeof(access) + (command == Command::dma_write ? access.count_bytes : 0));
    vfio::Header header{message.header.message_id, message.header.command, 0, vfio::kTypeReply, 0};
    std::vector<std::byte> payload;
    if (mood_ % 8 == 5) access.count_bytes ^= 1;
    if (mood_ % 8 == 6) ++header.message_id;
    append(payload, access);
    if (command == Command::dma_read) {
      payload.resize(sizeof(access) + access.count_bytes);
      (void)!pread(file_.get(), payload.data() + sizeof(access), access.count_bytes,
                   static_cast<off_t>(access.address % kFileBytes));
    } else {
      // What came, not what the answer will say came.
      const std::size_t bytes = std::min(message.payload.size() - sizeof(access), kFileBytes);
      (void)!pwrite(file_.get(), message.payload.data() + sizeof(access), bytes,
                    static_cast<off_t>(access.address % kFileBytes));
    }
    if (mood_ % 8 == 4) payload.resize(payload.size() / 2);
    if (mood_ % 8 == 3) header = {message.header.message_id, message.header.command, 0, 0x21, EFAULT};
    if (mood_ % 8 == 7) return;
    (void)socket_->start_send(header, payload);
  }

  void check(vfio::Message& reply) {
    FLASHMOB_CHECK((reply.header.flags & vfio::kFlagTypeMask) == vfio::kTypeReply);
    const bool error = (reply.header.flags & vfio::kFlagError) != 0;
    FLASHMOB_CHECK(error == (reply.header.error != 0));
    FLASHMOB_CHECK(!error || (reply.payload.empty() && reply.fds.empty()));
    last_reply_ = reply.header.message_id;
    vfio::RegionInfo info{};
    if (reply.fds.empty() || doorbells_ != nullptr || !reply.read(info)) return;
    void* mapped = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reply.fds[0].get(), 0x1000);
    FLASHMOB_CHECK(mapped != MAP_FAILED);
    doorbells_ = static_cast<volatile std::uint32_t*>(mapped);
  }

  static void munmap(volatile std::uint32_t* memory, std::size_t bytes) {
    ::munmap(const_cast<std::uint32_t*>(memory), bytes);
  }

  // Far more than anything takes that goes on by itself.
  static constexpr int kMostRounds = 100'000;

  Device& device_;
  const vfio::UniqueFd& file_;
  vfio::UniqueFd event_;
  const bool lazy_;
  std::unique_ptr<vfio::MessageSocket> socket_;
  std::unique_ptr<transport::Session> session_;
  volatile std::uint32_t* doorbells_ = nullptr;
  std::uint16_t next_id_ = 0;
  std::uint16_t last_reply_ = 0;
  bool alive_ = true;
  std::uint8_t mood_ = 0;
  bool exact_ = true;  // every message so far was a whole one
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  prefer_small_pages();
  static Device device;
  Input in(data, size);
  {
    const std::uint8_t start = in.byte();
    Client client(device, start >= 192);
    if (start % 8 != 0) client.negotiate();
    if (start % 8 > 2 && client.alive()) client.map_all();
    if (start % 8 == 2 && client.alive()) client.map_unshared();
    for (int steps = 0; steps < 64 && !in.empty() && client.alive(); ++steps) client.step(in);
  }
  while (device.poll()) continue;
  FLASHMOB_CHECK(device.engine.outstanding() == 0);
  const std::lock_guard lock(device.subsystem.mutex());
  FLASHMOB_CHECK(device.subsystem.controllers().empty());
  return 0;
}
